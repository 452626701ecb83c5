"""Runs a rocid for tests and programs that use it. All waits have time limits."""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time

from output_file import OutputFile

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('ROCI_BUILD', REPO / os.environ.get('BUILD', 'build')))
ROCI = pathlib.Path(os.environ.get('ROCI', BUILD / 'apps/roci/roci'))
ROCID = pathlib.Path(os.environ.get('ROCID', BUILD / 'apps/rocid/rocid'))
START_LIMIT = 60


class Failure(Exception):
    """The failure of a case. Its text is the reason."""


def shown(path):
    """Returns a path. If it is inside the repository, the returned path is relative to the repository."""
    path = pathlib.Path(path)
    return str(path.relative_to(REPO)) if path.is_relative_to(REPO) else str(path)


def begin(command, log_path):
    """Starts a rocid that writes its log to a file. Returns (process, whether rocid serves). A rocid that does not
    serve has ended."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with open(log_path, 'wb') as log:
        process = subprocess.Popen([*command, '--ready-fd', str(write_end)], pass_fds=[write_end], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True)
    os.close(write_end)
    with os.fdopen(read_end, 'rb') as ready:
        serves = ready.read(5).startswith(b'ready')
    if not serves:
        process.wait(START_LIMIT)
    return process, serves


def finish(process, how=signal.SIGTERM, limit=30):
    """Sends the signal `how` to a rocid and waits for its end. Returns True. If the rocid still runs after `limit`
    seconds, kills it and returns False."""
    if process is None or process.poll() is not None:
        return True
    process.send_signal(how)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def steady(value, apart=0.05, limit=5):
    """Returns the value of the function as soon as two values in a row are equal, or after `limit` seconds. rocid closes the descriptors of a program after the
    program has ended, one after the other."""
    end = time.monotonic() + limit
    last, before = value(), None
    while last != before and time.monotonic() < end:
        time.sleep(apart)
        last, before = value(), last
    return last


class Rocid:
    """A rocid with a separate socket, in loopback mode or with a configuration file. The rocid runs during a `with`
    block."""

    def __init__(self, config=None, args=()):
        self.folder = tempfile.TemporaryDirectory(prefix='roci-lab-')
        self.socket = os.path.join(self.folder.name, 'rocid.sock')
        self.log_path = os.path.join(self.folder.name, 'rocid.log')
        self.config = config
        what = ['--config', str(config)] if config else ['--loopback']
        self.command = [str(ROCID), *what, '--socket', self.socket, *args]
        self.process = None

    def __enter__(self):
        self.process, serves = begin(self.command, self.log_path)
        if not serves:
            raise Failure(f'rocid did not start (exit {self.process.returncode}):\n{self.log()}')
        return self

    def __exit__(self, *_):
        finish(self.process)
        self.folder.cleanup()

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors='replace')

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failure(f'rocid died (exit {self.process.returncode}); its log ends:\n{self.log()[-2000:]}')

    def status(self):
        done = subprocess.run([ROCI, 'status', '--json', '--socket', self.socket], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            self.check_alive()
            raise Failure(f'roci status: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def totals(self):
        """Returns the numbers of rocid's objects, of its open descriptors and of its shared mappings. After a program
        has ended, each number must return to its previous value."""
        totals = self.status()['totals']
        proc = pathlib.Path(f'/proc/{self.process.pid}')
        totals['open files'] = steady(lambda: len(os.listdir(proc / 'fd')))
        totals['shared mappings'] = sum('/memfd:' in line for line in (proc / 'maps').read_text().splitlines())
        return totals

    def open_files(self):
        """Returns {kind of rocid's open descriptors: number}, for messages."""
        kinds = collections.Counter()
        for entry in pathlib.Path(f'/proc/{self.process.pid}/fd').iterdir():
            with contextlib.suppress(FileNotFoundError):
                kinds[re.sub(r'\d{3,}', 'N', os.readlink(entry))] += 1
        return dict(kinds)

    def command_of(self, program):
        return [str(ROCI), 'run', '--socket', self.socket, '--', *program]

    def by_hand(self, program):
        """Returns a command that repeats a case by hand. The command starts an ephemeral rocid with the same
        configuration."""
        config = f'--config {shown(self.config)} ' if self.config else ''
        return f'{shown(ROCI)} run {config}-- {shlex.join(program)}'


class Program:
    """A running program that uses a rocid. Its output goes to a file, because the program could block on a full
    pipe."""

    def __init__(self, rocid, command, env=None):
        self.command, self.started = command, time.monotonic()
        self.file = OutputFile()
        self.process = subprocess.Popen(rocid.command_of(command), stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                                        start_new_session=True, env={**os.environ, **(env or {})})

    def output(self):
        return self.file.text()

    def wait(self, limit):
        """Returns the exit code. If the program runs longer than `limit` seconds, kills it and raises Failure."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f'{self.command[0]} took longer than {limit:.0f} s; it said:\n{self.output()[-1500:]}') from None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the program leads a session, so its process group has the number of its pid
        except ProcessLookupError:
            pass
        self.process.wait()

    def wait_listening(self, port, limit=30):
        """Waits until a program listens on the TCP port. Then the server is ready for its client."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if port in listening_ports():
                return
            if self.process.poll() is not None:
                raise Failure(f'{self.command[0]} (server) ended with {self.process.returncode} before its client came:\n{self.output()[-1500:]}')
            time.sleep(0.02)
        raise Failure(f'{self.command[0]} (server) does not listen on port {port} after {limit} s:\n{self.output()[-1500:]}')


LISTEN = '0A'


def listening_ports():
    ports = set()
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                ports.add(int(fields[1].rsplit(':', 1)[1], 16))
    return ports


_ports = itertools.count(random.randrange(21000, 31000))


def free_port():
    for port in _ports:
        with socket.socket() as s:
            try:
                s.bind(('0.0.0.0', port))
                return port
            except OSError:
                continue


def run_once(rocid, command, limit=30):
    """Runs a program until it ends and returns its output. Raises Failure if the exit code is not 0."""
    program = Program(rocid, command)
    code = program.wait(limit)
    rocid.check_alive()
    if code != 0:
        raise Failure(f'{shlex.join(command)} returned {code}:\n{program.output()[-1500:]}')
    return program.output()


def gid_indexes(rocid, device):
    """Returns {'ipv4': index, 'ipv6': index} of a device, according to the GIDs that ibv_devinfo prints."""
    found = {}
    for index, gid in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)', run_once(rocid, ['ibv_devinfo', '-v', '-d', device])):
        found.setdefault('ipv4' if gid.startswith('::ffff:') else 'ipv6', int(index))
    return found
