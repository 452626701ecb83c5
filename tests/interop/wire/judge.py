"""Captures the frames of a case. Then Wireshark's dissector checks the frames, and an independent computation checks
each ICRC."""
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import threading

import capture
import dissect


class Watch:
    """Runs `roci pcap` on the devices of a rocid. The capture ends after the first `most` bytes, so that it does not
    slow down the case."""

    def __init__(self, roci, socket, most):
        self.most, self.bytes, self.dropped = most, bytearray(), 0
        self.roci = subprocess.Popen([roci, 'pcap', '--socket', socket, '-w', '-'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.refusal = '' if b'capturing' in (line := self.roci.stderr.readline()) else f'roci pcap: {line.decode()}'
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while piece := self.roci.stdout.read1(1 << 16):
            self.bytes += piece[:self.most - len(self.bytes)]
            if len(self.bytes) >= self.most and self.roci.poll() is None:
                self.roci.send_signal(signal.SIGINT)

    def stop(self):
        """Stops the capture and returns all captured frames. Sets `dropped` to the number of frames that are missing
        in the capture."""
        if self.roci.poll() is None:
            self.roci.send_signal(signal.SIGINT)
        self.reader.join(60)
        said = self.roci.stderr.read().decode()
        self.roci.wait(60)
        self.dropped = int(found[1]) if (found := re.search(r'(\d+) dropped', said)) else 0
        return list(capture.frames_of(bytes(self.bytes)))

    def cut(self):
        """Returns True if the capture has reached its limit of `most` bytes."""
        return len(self.bytes) >= self.most


def write(path, frames):
    """Writes frames to a pcap file."""
    head = struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 1 << 16, 1)  # LINKTYPE_ETHERNET
    pathlib.Path(path).write_bytes(head + b''.join(struct.pack('<IIII', 0, 0, len(f), len(f)) + f for f in frames))


def icrc_complaint(frames):
    """Returns '' if there are RoCEv2 frames and all their ICRCs are right. Otherwise returns a complaint."""
    right, wrong = capture.count(frames)
    if not right and not wrong:
        return f'no RoCEv2 among {len(frames)} frames'
    return f'{wrong} of {right + wrong} ICRCs are wrong' if wrong else ''


def tshark_complaints(frames):
    """Returns (number of the frame, error) for each frame that Wireshark's dissector reports as malformed, or that has a wrong checksum."""
    with tempfile.TemporaryDirectory(prefix='roci-judge-') as folder:
        path = f'{folder}/frames.pcap'
        write(path, frames)
        return [(int(line.split()[0]) - 1, line) for line in dissect.malformed(path)]


def complaint(frames):
    """Returns '' if all frames are right. Otherwise returns a complaint."""
    if why := icrc_complaint(frames):
        return why
    bad = [line for _, line in tshark_complaints(frames)]
    return f'{len(bad)} of {len(frames)} frames are malformed to tshark:\n' + '\n'.join(bad[:10]) if bad else ''
