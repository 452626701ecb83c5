"""The links between rocid and a guest with Soft-RoCE. Usually the link is a tap in a network namespace. rocid uses
the kernel's end of the tap, and the guest uses the other end."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path += [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ('conformance', 'interop/guest')]
import guest  # noqa: E402
import image  # noqa: E402
import lab  # noqa: E402
import peer  # noqa: E402
from output_file import OutputFile  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get('ROCI_BUILD', REPO / os.environ.get('BUILD', 'build'))).resolve()
ROCI = pathlib.Path(os.environ.get('ROCI', BUILD / 'apps/roci/roci'))
ROCID = pathlib.Path(os.environ.get('ROCID', BUILD / 'apps/rocid/rocid'))
OPS = BUILD / 'tests/interop/rxe/ops'

MTU = 4200
PREFIX = {'ipv4': 24, 'ipv6': 64}
TAP, GUEST_MAC = 'tap0', '52:54:00:00:99:02'
VLAN = 100


@dataclasses.dataclass(frozen=True)
class Net:
    """A connection between rocid and the guest, and the configuration of rocid's device."""
    us: dict
    them: dict
    device: str
    side_us: str = ''  # addresses for the programs' own TCP connections
    side_them: str = ''


def addresses(network, number):
    return {'ipv4': f'10.{network}.0.{number}', 'ipv6': f'fd{network}::{number}'}


def with_prefix(of):
    return [f'{address}/{PREFIX[family]}' for family, address in of.items()]


def ours(network):
    return f'addresses = {json.dumps(with_prefix(addresses(network, 1)))}\n'


US, THEM = addresses(99, 1), addresses(99, 2)
NETS = {
    'tap': Net(US, THEM, f'port = "af_packet"\ninterface = "{TAP}"\n', US['ipv4'], THEM['ipv4']),
    # The guest's kernel has a VLAN interface. rocid adds the VLAN tags itself.
    'vlan': Net(addresses(97, 1), addresses(97, 2), f'port = "af_packet"\ninterface = "{TAP}"\nvlan = {VLAN}\n' + ours(97), US['ipv4'], THEM['ipv4']),
    # rocid uses a plain UDP socket. The socket is in the namespace of the tap (udp), or behind a router that has the
    # tap (routed).
    'udp': Net(US, THEM, f'port = "udp"\ninterface = "{TAP}"\n', US['ipv4'], THEM['ipv4']),
    'routed': Net(addresses(96, 1), THEM, 'port = "udp"\ninterface = "far0"\n', addresses(96, 1)['ipv4'], THEM['ipv4']),
    # The guest's NIC is the other end of rocid's port. rocid does not handle TCP, so TCP uses a separate tap.
    'vhost': Net(US, THEM, 'port = "vhost_user"\npath = "{vhost}"\nmac = "02:00:00:00:99:01"\n' + ours(99), '10.98.0.1', '10.98.0.2'),
}


class Failure(Exception):
    """The tested code has failed."""


class Rocid:
    """A rocid. Use in a `with` statement. `settings` are additional settings of its configuration, each as
    "section.key=value"."""

    def __init__(self, wire, net, settings=()):
        self.wire, self.net = wire, net
        self.folder = tempfile.TemporaryDirectory(prefix='roci-wire-')
        self.socket = f'{self.folder.name}/rocid.sock'
        self.log_path = pathlib.Path(self.folder.name) / 'log'
        config = pathlib.Path(self.folder.name) / 'rocid.toml'
        self.vhost = f'{self.folder.name}/vhost.sock'
        config.write_text('[engine]\nmax_sleep_us = 200\n[[device]]\nname = "roci0"\nmtu = 4096\n' + net.device.replace('{vhost}', self.vhost))
        self.command = [*wire.inside, str(ROCID), '--config', str(config), '--socket', self.socket]
        for s in settings:
            self.command += ['--set', s]
        self.process = None

    def __enter__(self):
        self.process, serves = lab.begin(self.command, self.log_path)
        if not serves:
            raise Failure(f'rocid does not start:\n{self.log()}')
        return self

    def __exit__(self, *_):
        lab.finish(self.process)
        self.folder.cleanup()

    def log(self):
        return self.log_path.read_text(errors='replace')

    def status(self):
        done = subprocess.run([ROCI, 'status', '--json', '--socket', self.socket], capture_output=True, text=True, timeout=30, check=True)
        return json.loads(done.stdout)

    def counters(self):
        """Returns the counters of all engines, added up."""
        total = {}
        for engine in self.status()['host']['engines']:
            for name, value in (engine['counters'] | engine['frames_by_verdict']).items():
                total[name] = total.get(name, 0) + value
        return total

    def command_of(self, program):
        return [*self.wire.inside, str(ROCI), 'run', '--socket', self.socket, '--', *program]


class Program:
    """A program of this machine that uses a rocid."""

    def __init__(self, rocid, command):
        self.command, self.rocid = command, rocid
        self.file = OutputFile()
        self.process = subprocess.Popen(rocid.command_of(command), stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def output(self):
        return self.file.text()

    def wait(self, limit):
        """Waits for the end of the program. Returns (status, output)."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            return 124, self.output() + f'\n({self.command[0]} took longer than {limit} s)'
        return status, self.output()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Wire:
    """The namespace, the tap and the guest. Use in a `with` statement."""

    kernel_has = US  # addresses of the tap

    def __init__(self, folder):
        self.name = f'roci-rxe-{os.getpid()}'
        self.inside = self.guest_inside = ['ip', 'netns', 'exec', self.name]  # prefixes of commands: `inside` for rocid and our programs, `guest_inside` for QEMU
        self.folder, self.guest, self.stack = folder, None, contextlib.ExitStack()

    def ip(self, *words):
        subprocess.run(['ip', '-n', self.name, *words], check=True, capture_output=True)

    def __enter__(self):
        try:
            kernel, initramfs = image.build(self.folder, peer.contents(OPS))
            subprocess.run(['ip', 'netns', 'add', self.name], check=True, capture_output=True)
            self.stack.callback(subprocess.run, ['ip', 'netns', 'delete', self.name], check=False)
            self.ip('link', 'set', 'lo', 'up')
            self.ip('tuntap', 'add', 'dev', TAP, 'mode', 'tap')
            self.ip('link', 'set', TAP, 'mtu', str(MTU))
            for address in with_prefix(self.kernel_has):
                self.ip('address', 'add', address, 'dev', TAP, *(['nodad'] if ':' in address else []))
            self.ip('link', 'set', TAP, 'up')
            self.start_guest(kernel, initramfs)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_guest(self, kernel=None, initramfs=None):
        if kernel is None:
            kernel, initramfs = image.build(self.folder, peer.contents(OPS))
        self.guest = self.make_guest(kernel, initramfs)
        self.guest.__enter__()

    def make_guest(self, kernel, initramfs):
        return guest.Guest(kernel, initramfs, peer.machine(TAP, GUEST_MAC, with_prefix(THEM), MTU), self.guest_inside)

    def rocid(self, net, settings):
        """Returns a rocid. Use it in a `with` statement."""
        if net == 'vlan':
            self.guest_vlan()
        return Rocid(self, NETS[net], settings)

    def guest_vlan(self):
        """Adds the VLAN interface in the guest. Soft-RoCE stays on the NIC itself. It also serves the addresses of
        the VLAN interface."""
        if self.guest.run(f'ip link show eth0.{VLAN}')[0] == 0:
            return
        name = f'eth0.{VLAN}'
        self.guest.must(f'ip link add link eth0 name {name} type vlan id {VLAN} && echo 0 >/proc/sys/net/ipv6/conf/{name}/accept_dad && ip link set {name} up && ' +
                        ' && '.join(f'ip address add {a} dev {name}' for a in with_prefix(NETS['vlan'].them)))

    def restart_guest(self):
        """Replaces the guest by a new guest. Called after a failure, because Soft-RoCE in the guest's kernel may have
        hung."""
        self.guest.__exit__()
        self.start_guest()

    def __exit__(self, *_):
        if self.guest is not None:
            self.guest.__exit__()
        self.stack.close()

    def guest_loss(self, rules):
        """Applies netem rules such as "loss 1%" to the RoCE frames that the guest sends, but not to TCP. If `rules`
        is '', removes the rules."""
        self.guest.run('tc qdisc del dev eth0 root')
        if not rules:
            return
        self.guest.must('tc qdisc add dev eth0 root handle 1: prio && '
                        f'tc qdisc add dev eth0 parent 1:3 handle 30: netem {rules} limit 10000 && '
                        'tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:3 && '
                        'tc filter add dev eth0 parent 1: protocol ipv6 prio 2 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff flowid 1:3')

    def gids(self, rocid):
        """Returns the GID indices as ({family: index of rocid}, {family: index of the guest})."""
        program = Program(rocid, ['ibv_devinfo', '-v', '-d', 'roci0'])
        status, ours = program.wait(30)
        if status != 0:
            raise Failure(f'ibv_devinfo: {status}\n{ours}')
        return gid_indexes(ours, rocid.net.us), gid_indexes(self.guest.must('ibv_devinfo -v -d rxe0'), rocid.net.them)


class RoutedWire(Wire):
    """A link on which rocid is in a separate namespace. The namespace of the tap is a router."""

    kernel_has = addresses(99, 3)

    def __enter__(self):
        far = f'{self.name}-far'
        subprocess.run(['ip', 'netns', 'add', far], check=True, capture_output=True)
        self.stack.callback(subprocess.run, ['ip', 'netns', 'delete', far], check=False)
        self.inside = ['ip', 'netns', 'exec', far]
        super().__enter__()
        return self

    def start_guest(self, kernel=None, initramfs=None):
        if self.guest is None:
            self.link_far()
        super().start_guest(kernel, initramfs)
        for network, router in (('10.96.0.0/24', self.kernel_has['ipv4']), ('fd96::/64', self.kernel_has['ipv6'])):
            self.guest.must(f'ip route add {network} via {router}')

    def link_far(self):
        far = f'{self.name}-far'
        ends = {self.name: ('near0', addresses(96, 3)), far: ('far0', NETS['routed'].us)}
        self.ip('link', 'add', 'near0', 'type', 'veth', 'peer', 'name', 'far0', 'netns', far)
        for namespace, (interface, has) in ends.items():
            subprocess.run(['ip', '-n', namespace, 'link', 'set', interface, 'mtu', str(MTU), 'up'], check=True, capture_output=True)
            for address in with_prefix(has):
                subprocess.run(['ip', '-n', namespace, 'address', 'add', address, 'dev', interface, *(['nodad'] if ':' in address else [])], check=True, capture_output=True)
        subprocess.run(['ip', '-n', far, 'link', 'set', 'lo', 'up'], check=True, capture_output=True)
        for network, router in (('10.99.0.0/24', addresses(96, 3)['ipv4']), ('fd99::/64', addresses(96, 3)['ipv6'])):
            subprocess.run(['ip', '-n', far, 'route', 'add', network, 'via', router], check=True, capture_output=True)
        for key in ('ipv4/ip_forward', 'ipv6/conf/all/forwarding'):
            subprocess.run(['ip', 'netns', 'exec', self.name, 'sh', '-c', f'echo 1 >/proc/sys/net/{key}'], check=True, capture_output=True)


class VhostWire(Wire):
    """A link without a tap for RoCE. The guest's NIC is connected to rocid's vhost_user port, so rocid must start
    before the guest."""

    kernel_has = {'ipv4': NETS['vhost'].side_us}

    def __init__(self, folder):
        super().__init__(folder)
        self.first = Rocid(self, NETS['vhost'])

    def make_guest(self, kernel, initramfs):
        if self.first.process is None:
            self.stack.enter_context(self.first)
        machine = peer.machine(TAP, GUEST_MAC, with_prefix(THEM), MTU, self.first.vhost, f"{NETS['vhost'].side_them}/24")
        return guest.Guest(kernel, initramfs, machine, self.guest_inside)

    def rocid(self, net, settings):
        return contextlib.nullcontext(self.first)


def gid_indexes(text, wanted):
    """Finds the wanted addresses in the output of ibv_devinfo. Returns {family: index}."""
    found = {gid: int(index) for index, gid in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)', text)}
    missing = [a for f, a in wanted.items() if (f'::ffff:{a}' if f == 'ipv4' else a) not in found]
    if missing:
        raise Failure(f'no GID for {", ".join(missing)}:\n{text}')
    return {family: found[f'::ffff:{a}' if family == 'ipv4' else a] for family, a in wanted.items()}


def wait_until(condition, limit, what):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f'{what}: not within {limit} s')
        time.sleep(0.05)
