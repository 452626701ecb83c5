"""Programs that use verbs through a library: UCX with its own benchmark, and Open MPI over UCX."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from lab import Failure, Program, free_port, run_once
from pairs import both_outputs, wait_both
from single import DEVICES, need

VERBS = 'rc_verbs,ud_verbs'
TALK = pathlib.Path(__file__).with_name('mpi') / 'talk.c'


def ucx_lists_our_transports(rocid):
    text = run_once(rocid, ['ucx_info', '-d'])
    for device in DEVICES:
        for transport in VERBS.split(','):
            need(text, rf'Transport: {transport}\n#\s+Device: {device}:1', f'{transport} on {device}')


@dataclasses.dataclass(frozen=True)
class Perftest:
    """One run of ucx_perftest between the two devices. `transport` is the argument of -x, which selects a transport
    below UCP. If it is None, UCP selects the transport."""
    test: str
    size: int = 8
    count: int = 500
    transport: str | None = None
    tls: str = VERBS
    layout: str = 'short'  # the way in which the level below UCP passes the data

    @property
    def name(self):
        return f'ucx_perftest {self.test} of {self.size} bytes, {self.transport or "UCP over " + self.tls}'

    def command(self, side, port):
        words = ['ucx_perftest', '-p', str(port)] + (['localhost'] if side == 1 else [])
        words += ['-t', self.test, '-s', str(self.size), '-n', str(self.count), '-w', '10'] if side == 1 else []
        return words + (['-x', self.transport, '-d', f'{DEVICES[side]}:1', '-D', self.layout] if self.transport else [])

    def environment(self, side):
        return {'UCX_TLS': self.tls, 'UCX_NET_DEVICES': f'{DEVICES[side]}:1'}

    def run(self, rocid):
        port = free_port()
        server = Program(rocid, self.command(0, port), self.environment(0))
        client = None
        try:
            server.wait_listening(port)
            client = Program(rocid, self.command(1, port), self.environment(1))
            wait_both(server, client, time.monotonic() + 60)
        finally:
            for program in (client, server):
                if program and program.process.poll() is None:
                    program.kill()
        rocid.check_alive()
        if server.process.returncode != 0 or client.process.returncode != 0 or re.search(r'\b(ERROR|WARN)\b', client.output()):
            raise Failure(both_outputs(server, client))
        need(client.output(), rf'Final:\s+{self.count}\s+[\d.]+', 'its result line')


def perftests():
    for tls in (VERBS, 'ud_verbs'):
        for size in (8, 65536):
            yield Perftest('tag_lat', size, tls=tls)
            yield Perftest('tag_bw', size, tls=tls)
    for test in ('ucp_put_lat', 'ucp_put_bw', 'ucp_get', 'ucp_add', 'ucp_fadd', 'ucp_swap', 'ucp_cswap', 'stream_bw', 'ucp_am_lat'):
        yield Perftest(test)
    for test in ('am_lat', 'am_bw', 'put_lat', 'put_bw', 'fadd', 'cswap'):
        yield Perftest(test, transport='rc_verbs')
    for size, layout in ((8, 'bcopy'), (65536, 'zcopy')):
        yield Perftest('get', size, transport='rc_verbs', layout=layout)
    yield Perftest('am_lat', transport='ud_verbs')


def mpi_talks(rocid):
    """Runs two ranks, each on its own device. `pml ucx` and UCX_TLS permit no transport except verbs."""
    with tempfile.TemporaryDirectory(prefix='roci-mpi-') as folder:
        program = os.path.join(folder, 'talk')
        built = subprocess.run(['mpicc', '-O2', '-Wall', '-Werror', str(TALK), '-o', program], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise Failure(f'mpicc: {built.stderr[-1500:]}')
        ranks = ' : '.join(f'-n 1 -x UCX_NET_DEVICES={device}:1 {program}' for device in DEVICES).split()
        mpirun = ['mpirun', '--oversubscribe', '--mca', 'pml', 'ucx', '--mca', 'btl', '^openib,vader,tcp', *ranks]
        environment = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'UCX_TLS': f'{VERBS},self', 'HOME': folder}
        run = Program(rocid, mpirun, environment)
        code = run.wait(120)
        rocid.check_alive()
        if code != 0 or 'talk: ok' not in run.output():
            raise Failure(f'mpirun returned {code}:\n{run.output()[-2000:]}')


# The key is the name. The value is the case and the program that the case needs.
CASES = {
    'ucx_info lists rc_verbs and ud_verbs on both devices': (ucx_lists_our_transports, 'ucx_info'),
    **{p.name: (p.run, 'ucx_perftest') for p in perftests()},
    'Open MPI over UCX: ping-pong and allreduce of two ranks': (mpi_talks, 'mpicc'),
}


def missing(program):
    return None if shutil.which(program) else f'{program} is not installed (./dev setup)'
