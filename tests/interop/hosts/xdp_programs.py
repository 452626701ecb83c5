"""Tests with an XDP program that does not belong to rocid ("foreign program"). It is attached to the interface before
rocid starts or while rocid runs."""
import json
import pathlib
import subprocess

from cases import XDP_MTU, Group, check, cross, program_on, refuses
from hosts import BUILD, Failure, run

OBJECT = BUILD / 'tests/interop/hosts/foreign.bpf.o'
WORDS = ("has the XDP program 'foreign'", 'ip link set dev wire0 xdp off')


def put_on(host, mode='xdpdrv'):
    """Attaches the foreign program. Returns '' or the error of the kernel."""
    done = subprocess.run(['ip', '-n', host.namespace, 'link', 'set', 'dev', host.interface, mode, 'obj', OBJECT, 'sec', 'xdp'],
                          capture_output=True, text=True, check=False)
    return '' if done.returncode == 0 else done.stderr.strip() or f'exit {done.returncode}'


def counted(program):
    """Returns the number of frames that the program has passed to the kernel."""
    number = json.loads(run(['bpftool', '-j', 'prog', 'show', 'id', str(program['prog']['id'])]))['map_ids'][0]
    return json.loads(run(['bpftool', '-j', 'map', 'dump', 'id', str(number)]))[0]['formatted']['value']


class Foreign:
    """During a `with` block, the foreign program is attached to the interface of host a. At the end it must still be
    attached and work."""

    def __init__(self, net):
        self.net = net

    def __enter__(self):
        if why := put_on(self.net.a):
            raise Failure(f'no XDP program can be put on {self.net.a.interface}: {why}')
        self.program = program_on(self.net.a)

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.look()
        finally:
            self.net.a.ip(f'link set dev {self.net.a.interface} xdp off')

    def look(self):
        check(program_on(self.net.a) == self.program, f'it was {self.program}, and is {program_on(self.net.a)}')
        before = counted(self.program)
        said = self.net.b.sh(f'ping -c 5 -i 0.1 -W 2 {self.net.a.ipv4}')
        check(' 0% packet loss' in said, said)
        check(counted(self.program) >= before + 5, f'it counted {before} frames, after five pings {counted(self.program)}')


def refused(net):
    with Foreign(net):
        refuses(net.a, net.a.device('af_xdp'), *WORDS)


def others_go_on(net):
    net.a.ip('link add other0 type veth peer name other1')
    for end in ('other0', 'other1'):
        net.a.ip(f'link set {end} up')
    with Foreign(net):
        try:
            net.a.start(net.a.device('af_xdp') + net.a.device('af_packet', name='roci1', interface='other0'))
            errors = [line for line in net.a.log().splitlines() if 'rocid: error' in line]
            check(len(errors) == 1 and all(words in errors[0] for words in WORDS), '\n'.join(errors) or 'nothing is said')
            check('PORT_ACTIVE' in net.a.rdma_once('ibv_devinfo -d roci1'), 'the other device is not active')
        finally:
            net.a.stop()
            net.a.ip('link del other0')


def af_packet_beside(net):
    """af_packet must work while the foreign program is attached, because this program passes all frames to the
    kernel."""
    with Foreign(net):
        try:
            for host in (net.a, net.b):
                host.start(host.device('af_packet'))
            cross(net, 'ibv_rc_pingpong -n 100')
        finally:
            net.a.stop()
            net.b.stop()


def ours_is_kept(net):
    """While rocid runs, `ip link` must not be able to replace or detach rocid's program. After rocid has ended, no
    program may be attached to the interface."""
    try:
        for host in (net.a, net.b):
            host.start(host.device('af_xdp'))
        ours = program_on(net.a)
        check(ours, 'no XDP program while rocid runs')
        for mode in ('xdpdrv', 'xdpgeneric'):
            check(put_on(net.a, mode), f'theirs came in place of ours ({mode})')
        net.a.ip(f'link set dev {net.a.interface} xdp off', check=False)
        check(program_on(net.a) == ours, f'ours was {ours}, and is {program_on(net.a)}')
        cross(net, 'ibv_rc_pingpong -n 100')
        check(net.a.xdp()['steered'] > 100, f'{net.a.xdp()}')
    finally:
        net.a.stop()
        net.b.stop()
    check(not program_on(net.a), f'still there after the end: {program_on(net.a)}')
    check(put_on(net.a) == '', 'theirs does not come after our end')
    net.a.ip(f'link set dev {net.a.interface} xdp off')


def rows(quick):
    yield 'somebody else\'s XDP program: af_xdp is refused, and the program left at work', refused
    yield 'somebody else\'s XDP program: other devices go on', others_go_on
    yield 'somebody else\'s XDP program: af_packet beside it', af_packet_beside
    yield 'somebody else\'s XDP program: not in place of ours', ours_is_kept


def why_not():
    return '' if pathlib.Path(OBJECT).exists() else f'{OBJECT} is not built (./dev build)'


GROUPS = [Group('somebody else\'s XDP program', rows, mtu=XDP_MTU, why_not=why_not)]
