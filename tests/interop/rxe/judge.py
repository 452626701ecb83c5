"""What crosses the wire while a case runs, judged: by Wireshark's dissector, and each ICRC by an independent computation."""
import pathlib
import signal
import subprocess
import sys
import tempfile

import bench

sys.path += [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ('conformance', 'interop/wire')]
import capture  # noqa: E402
import dissect  # noqa: E402


class Judged:
    """Use with `with`; ends in a Failure if a frame is not as it must be."""

    def __init__(self, rocid):
        self.rocid, self.folder = rocid, tempfile.TemporaryDirectory(prefix='roci-judge-')
        self.path = f'{self.folder.name}/frames.pcapng'

    def __enter__(self):
        self.roci = subprocess.Popen([bench.ROCI, 'pcap', '--socket', self.rocid.socket, '-w', self.path], stderr=subprocess.PIPE, text=True)
        line = self.roci.stderr.readline()
        if 'capturing' not in line:
            raise bench.Failure(f'roci pcap: {line}')

    def __exit__(self, kind, *_):
        self.roci.send_signal(signal.SIGINT)
        self.roci.communicate(timeout=60)
        try:
            if kind is None:
                self.judge()
        finally:
            self.folder.cleanup()

    def judge(self):
        right, wrong = capture.count_icrcs(self.path)
        if wrong or not right:
            raise bench.Failure(f'{wrong} of {right + wrong} ICRCs are wrong')
        if bad := dissect.malformed(self.path):
            raise bench.Failure(f'{len(bad)} of {right} frames are malformed to tshark:\n' + '\n'.join(bad[:10]))
