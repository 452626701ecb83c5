"""Two hosts on one machine. Each host is a network namespace with a rocid. A veth pair connects the namespaces."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path += [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ('conformance', 'interop/wire')]
import judge  # noqa: E402
import lab  # noqa: E402
from output_file import OutputFile  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get('ROCI_BUILD', REPO / os.environ.get('BUILD', 'build')))
ROCI = BUILD / 'apps/roci/roci'
ROCID = pathlib.Path(os.environ.get('ROCID', BUILD / 'apps/rocid/rocid'))


class Failure(Exception):
    """The failure of a case. Its text is the reason."""


def run(command, check=True):
    words = shlex.split(command) if isinstance(command, str) else command
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if check and done.returncode != 0:
        raise Failure(f'{shlex.join(words)} returned {done.returncode}: {done.stderr.strip() or done.stdout.strip()}')
    return done.stdout


def why_not():
    """Returns what this machine needs for the hosts but does not have, or ''."""
    for tool in ('ip', 'ibv_rc_pingpong', 'ib_write_bw'):
        if shutil.which(tool) is None:
            return f'{tool} is not installed (./dev setup)'
    name = f'roci-try-{os.getpid()}'
    made = subprocess.run(['ip', 'netns', 'add', name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f'no network namespace can be made here: {made.stderr.strip()}'
    veth = subprocess.run(['ip', '-n', name, 'link', 'add', 'left0', 'type', 'veth', 'peer', 'name', 'right0'], capture_output=True, text=True, check=False)
    subprocess.run(['ip', 'netns', 'del', name], check=False)
    return f'no veth pair can be made here: {veth.stderr.strip()}' if veth.returncode != 0 else ''


class Program:
    """A running program. Its output goes to a file, because the program could block on a full pipe."""

    def __init__(self, command):
        self.command = command
        self.file = OutputFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT, start_new_session=True)

    def output(self):
        return self.file.text()

    def wait(self, limit):
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f'{shlex.join(map(str, self.command))} took longer than {limit:.0f} s; it said:\n{self.output()[-1500:]}') from None

    def kill(self, how=signal.SIGKILL):
        try:
            os.killpg(self.process.pid, how)  # the program leads a session, so its process group has the number of its pid
        except ProcessLookupError:
            pass
        self.process.wait()


class Host:
    """One host: a network namespace with an interface and a rocid."""

    def __init__(self, namespace, interface, number, folder):
        self.namespace, self.interface, self.number = namespace, interface, number
        self.socket, self.log_path = f'{folder}/{number}.sock', f'{folder}/{number}.log'
        self.config_path = f'{folder}/{number}.toml'
        self.roce = {4: self.ipv4, 6: self.ipv6}  # addresses of rocid's device; by default those of the kernel
        self.process = None

    inside = property(lambda self: ['ip', 'netns', 'exec', self.namespace])
    ipv4 = property(lambda self: f'10.79.0.{self.number}')
    ipv6 = property(lambda self: f'fd79::{self.number}')

    def ip(self, words, check=True):
        return run(f'ip -n {self.namespace} {words}', check)

    def sh(self, command, check=True):
        return run([*self.inside, *shlex.split(command)], check)

    def prepare(self, mtu):
        self.ip('link set lo up')
        self.ip(f'link set {self.interface} mtu {mtu} up')
        self.ip(f'addr add {self.ipv4}/24 dev {self.interface}')
        self.ip(f'addr add {self.ipv6}/64 dev {self.interface} nodad')

    # ---- rocid -------------------------------------------------------------------------------------------------------

    def device(self, kind, **keys):
        lines = {'name': 'roci0', 'port': kind, 'interface': self.interface, **keys}
        return '[[device]]\n' + ''.join(f'{k} = {json.dumps(v)}\n' for k, v in lines.items())

    def launch(self, config, inside=True, under=()):
        """Starts a rocid. Returns True after it has begun to serve, or False if it has ended. `under` is a prefix of
        its command (setpriv ...)."""
        pathlib.Path(self.config_path).write_text('[memory]\nmbufs = 4096\n' + config)
        command = [*(self.inside if inside else []), *under, str(ROCID), '--config', self.config_path, '--socket', self.socket]
        self.process, serves = lab.begin(command, self.log_path)
        return serves

    def start(self, config, inside=True, under=()):
        if not self.launch(config, inside, under):
            raise Failure(f'rocid did not start (exit {self.process.returncode}):\n{self.log()}')

    def stop(self, how=signal.SIGTERM):
        if not lab.finish(self.process, how):
            raise Failure(f'rocid does not stop; its log ends:\n{self.log()[-1000:]}')

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors='replace')

    def status(self):
        return json.loads(run([str(ROCI), 'status', '--json', '--socket', self.socket]))

    def xdp(self):
        """Returns the counters of the XDP program on the first port."""
        return self.status()['host']['ports'][0].get('xdp', {})

    # ---- programs ----------------------------------------------------------------------------------------------------

    def rdma(self, words):
        """Starts a program that uses the rocid of this host."""
        return Program([*self.inside, str(ROCI), 'run', '--socket', self.socket, '--', *shlex.split(words)])

    def rdma_once(self, words, limit=30):
        p = self.rdma(words)
        if p.wait(limit) != 0:
            raise Failure(f'{words} failed:\n{p.output()[-1000:]}')
        return p.output()

    def gids(self):
        """Returns the GIDs of the device as {GID as text: index}."""
        return {gid: int(i) for i, gid in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)', self.rdma_once('ibv_devinfo -v -d roci0'))}

    def gid(self, family):
        wanted = f'::ffff:{self.roce[4]}' if family == 4 else self.roce[6]
        found = self.gids()
        if wanted not in found:
            raise Failure(f'no GID {wanted}: {found}')
        return found[wanted]

    def start_tcp_sink(self, port=18555):
        """Starts a program that accepts one TCP connection and prints the number of received bytes."""
        code = (f'import socket; s=socket.create_server(("", {port})); c=s.accept()[0]; n=0\n'
                'while (d := c.recv(1 << 16)): n += len(d)\nprint(n)')
        sink = Program([*self.inside, 'python3', '-c', code])
        self.wait_listening(port, sink)
        return sink

    def wait_listening(self, port, server, limit=30):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if f':{port}' in self.sh('ss -ltnH'):
                return
            if server.process.poll() is not None:
                raise Failure(f'the server ended with {server.process.returncode} before its client came:\n{server.output()[-1500:]}')
            time.sleep(0.02)
        raise Failure(f'the server does not listen:\n{server.output()[-1500:]}')


class Wire:
    """Captures the frames at the ports of host a and checks them. The ICRCs are checked after each case, and tshark
    checks all frames at the end."""
    BYTES, FRAMES = 2 << 20, 1000  # limits per case; frames beyond a limit are not checked

    def __init__(self, judged):
        self.judged, self.watch, self.frames, self.cases, self.dropped = judged, None, [], [], 0

    def begin(self, host):
        """Starts a capture. The capture lasts until the end of the case."""
        if self.judged and self.watch is None:
            self.watch = judge.Watch(ROCI, host.socket, self.BYTES)

    def end_case(self, name):
        """Ends the capture. Raises Failure if an ICRC was wrong or if no frame was captured."""
        if (watch := self.watch) is None:
            return
        self.watch = None
        frames = watch.stop()[:self.FRAMES]
        self.frames += frames
        self.cases += [name] * len(frames)
        self.dropped += watch.dropped
        if why := watch.refusal or judge.icrc_complaint(frames):
            raise Failure(why)

    def drop(self):
        if self.watch is not None:
            self.watch.stop()
            self.watch = None

    def judge(self):
        bad = judge.tshark_complaints(self.frames)
        if bad:
            raise Failure(f'{len(bad)} of {len(self.frames)} frames:\n' + '\n'.join(f'{self.cases[i]}: {line}' for i, line in bad[:10]))
        return f'{len(self.frames)} frames of {len(set(self.cases))} cases' + (f'; captures dropped {self.dropped}' if self.dropped else '')


class Network:
    """Two connected hosts. Use in a `with` statement."""

    def __init__(self, mtu, queues=1, judged=True):
        self.mtu, self.queues = mtu, queues  # `queues` is the number of queues at each end of the veth pair
        self.wire = Wire(judged)
        self.folder = tempfile.TemporaryDirectory(prefix='roci-hosts-')
        names = [f'roci-{os.getpid()}-{side}' for side in 'ab']
        self.a, self.b = Host(names[0], 'wire0', 1, self.folder.name), Host(names[1], 'wire0', 2, self.folder.name)

    @staticmethod
    def wait(condition, why, limit=20):
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise Failure(why)
            time.sleep(0.05)

    def __enter__(self):
        try:
            for host in (self.a, self.b):
                run(f'ip netns add {host.namespace}')
            queues = f'numrxqueues {self.queues} numtxqueues {self.queues}'
            run(f'ip link add wire0 netns {self.a.namespace} {queues} type veth peer name wire0 netns {self.b.namespace} {queues}')
            for host in (self.a, self.b):
                host.prepare(self.mtu)
        except Failure:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.wire.drop()
            for host in (self.a, self.b):
                host.stop()
        finally:
            for host in (self.a, self.b):
                subprocess.run(['ip', 'netns', 'del', host.namespace], capture_output=True, check=False)
            self.folder.cleanup()
