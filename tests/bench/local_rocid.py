"""Starts a rocid with loopback devices and sets the environment for programs that use it."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Prefix of a command. If the process that has started the command ends, the command is killed, even if this process
# itself was killed.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"]


def end_on_signals():
    """Makes SIGTERM and SIGHUP end this program by an exception. The program then also ends the programs that it has
    started."""
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda number, _: sys.exit(128 + number))


def wait_listening(port):
    """Waits until a program listens on the TCP port, but not longer than 20 s."""
    listens = re.compile(rf":{port:04X} \S+ 0A ")
    for _ in range(1000):
        if any(listens.search(Path("/proc/net", table).read_text()) for table in ("tcp", "tcp6")):
            return
        time.sleep(0.02)


class Rocid:
    """A rocid; a context manager. `settings` are the values of --set. `prefix` is a prefix of the command. If
    `own_session` is true, rocid runs in a separate session."""

    def __init__(self, build, settings=(), prefix=(), own_session=False):
        self.build, self.settings, self.prefix, self.own_session = build, settings, prefix, own_session

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        socket = f"{self.folder.name}/rocid.sock"
        sets = [word for s in self.settings for word in ("--set", s)]
        self.log = open(f"{self.folder.name}/log", "w")
        self.process = subprocess.Popen([*ENDS_WITH_US, *self.prefix, str(self.build / "apps/rocid/rocid"), "--loopback", "--socket", socket, *sets],
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=self.own_session)
        libraries = ":".join(str(self.build / "verbs_api" / lib) for lib in ("libibverbs", "librdmacm"))
        self.env = dict(os.environ, ROCI_SOCKET=socket, LD_LIBRARY_PATH=libraries)
        for _ in range(200):
            if Path(socket).exists():
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit("rocid does not start: " + Path(self.log.name).read_text()[-500:])

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.log.close()
        self.folder.cleanup()

    def sleeps(self):
        """Returns {thread name: number of sleeps}. The numbers of threads with the same name are added."""
        counts = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended
            name = status["Name"].strip()
            counts[name] = counts.get(name, 0) + int(status["voluntary_ctxt_switches"])
        return counts
