"""RDMA for tests: a rocid with two devices, roci0 and roci1, for the time of a `with` block.

    import rocinante
    with rocinante.Rocid(drop=0.01, seed=7) as rdma:
        rdma.pair(['ib_write_bw', '-d', 'roci0', '-x', '1', '-F'], ['ib_write_bw', '-d', 'roci1', '-x', '1', '-F', '127.0.0.1'], port=18515)

rocinante.pytest_plugin makes such a rocid a fixture of pytest.
"""
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

FAULTS = ('drop', 'corrupt', 'reorder', 'duplicate', 'ecn', 'delay_us', 'seed')
START_LIMIT = 60
_LISTENS = '0A'  # state of a socket in /proc/net/tcp


class Error(Exception):
    """rocid does not start or does not answer, or a program fails. The text has the reason."""


def _program(name, *folders):
    """Finds a program: named by the variable NAME, in PATH, or in a folder for system programs."""
    found = os.environ.get(name.upper()) or shutil.which(name)
    for folder in folders:
        found = found or shutil.which(name, path=folder)
    if not found:
        raise Error(f'{name} is not installed: install the package rocinante, or set {name.upper()} to its path')
    return found


class Rocid:
    """A rocid with a socket of its own. Each name in FAULTS is a keyword argument. It sets the key of the same name in the section [fault] of
    rocinante.toml(5).

    single    one device that is its own peer, instead of two devices
    config    a configuration file instead of the built-in configuration
    settings  {'section.key': value}, as for `rocid --set`
    """

    def __init__(self, single=False, config=None, settings=None, **faults):
        unknown = set(faults) - set(FAULTS)
        if unknown:
            raise TypeError(f'no such fault: {", ".join(sorted(unknown))}; there are {", ".join(FAULTS)}')
        self.faults = faults
        self._roci, self._rocid = _program('roci'), _program('rocid', '/usr/sbin', '/usr/local/sbin')
        self._folder = tempfile.TemporaryDirectory(prefix='rocinante-')
        self.socket = os.path.join(self._folder.name, 'rocid.sock')
        self.log_file = pathlib.Path(self._folder.name, 'rocid.log')
        self._process, self._programs, self._before = None, [], {}
        kind = ['--config', str(config)] if config else ['--single' if single else '--loopback']
        settings = {f'fault.{name}': value for name, value in faults.items()} | (settings or {})
        self.command = [self._rocid, *kind, '--socket', self.socket]
        for name, value in settings.items():
            self.command += ['--set', f'{name}={value}']

    def __enter__(self):
        try:
            self._begin()
        except BaseException:  # Ctrl-C also must not leave a rocid behind
            self._end()
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_):
        for program in self._programs:
            if program.poll() is None:
                program.kill()
                program.wait()
            if program.stdout:
                program.stdout.close()
        self._end()
        for name, value in self._before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        self._folder.cleanup()

    def _begin(self):
        read_end, write_end = os.pipe()
        with open(self.log_file, 'wb') as log, os.fdopen(read_end, 'rb') as ready:
            try:
                self._process = subprocess.Popen([*self.command, '--ready-fd', str(write_end)], pass_fds=[write_end], stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log, start_new_session=True)
            finally:
                os.close(write_end)
            in_time = select.select([ready], [], [], START_LIMIT)[0]
            if not in_time or not ready.read(5).startswith(b'ready'):
                self._end()
                raise Error(f'rocid does not start:\n{self.log()}')

    def _end(self):
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self):
        return self.log_file.read_text(errors='replace')

    def command_of(self, command):
        """Returns the command that runs a program over this rocid."""
        return [self._roci, 'run', '--socket', self.socket, '--', *map(str, command)]

    def run(self, command, timeout=60, **options):
        """Runs a program over this rocid. Returns what subprocess.run() returns; output and error output are text in `stdout`."""
        options = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True, 'check': False} | options
        return subprocess.run(self.command_of(command), timeout=timeout, **options)

    def start(self, command, **options):
        """Starts a program over this rocid. Returns the subprocess.Popen. The end of the `with` block kills a program that still runs."""
        options = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True} | options
        self._programs.append(subprocess.Popen(self.command_of(command), **options))
        return self._programs[-1]

    def pair(self, server, client, port, timeout=60):
        """Runs a server, and its client once the server listens on the TCP port. Both must return 0. Returns the output of the client."""
        with tempfile.TemporaryFile(mode='w+', errors='replace') as said:
            begun = self.start(server, stdout=said)
            end = time.monotonic() + timeout
            while not _listens(port) and begun.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            done = None
            if begun.poll() is None:
                done = self.run(client, timeout)
                if done.returncode == 0 and begun.wait(timeout) == 0:
                    return done.stdout
            begun.kill()
            begun.wait()
            said.seek(0)
            ended = f'{client[0]}: {done.returncode}\n{done.stdout}\n' if done else ''
            raise Error(f'{ended}{server[0]}: {begun.returncode}\n{said.read()}')

    def _ask(self, *words):
        done = subprocess.run([self._roci, *words, '--socket', self.socket], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise Error(done.stderr.strip())
        return json.loads(done.stdout)

    def status(self):
        """Returns the output of `roci status --json`."""
        return self._ask('status', '--json')

    def counters(self, device):
        """Returns {name: value} of the counters of a device (docs/counters.md)."""
        return next(d['counters'] for d in self._ask('stat', '--interval', '0', '--all', '--json')['devices'] if d['name'] == device)

    def load(self):
        """Makes pyverbs, and other modules with verbs, use this rocid in the calling process. Call it before the first import of such a
        module, which otherwise loads the system's library."""
        folders = self.run(['printenv', 'LD_LIBRARY_PATH']).stdout.strip().split(':')
        for name in ('libibverbs.so.1', 'librdmacm.so.1'):
            found = next((path for folder in folders if (path := pathlib.Path(folder, name)).exists()), None)
            if not found:
                raise Error(f'{name} is not in {folders}')
            ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)
        self._before.setdefault('ROCI_SOCKET', os.environ.get('ROCI_SOCKET'))
        os.environ['ROCI_SOCKET'] = self.socket


def _listens(port):
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            rows = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        if any(row.split()[1].endswith(f':{port:04X}') and row.split()[3] == _LISTENS for row in rows):
            return True
    return False
