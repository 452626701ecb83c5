"""Tests of RoCEv2 over a plain UDP socket: traffic, changes of the link, operation without privilege, and refused
configurations."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from cases import Group, check, cross, happenings, matrix, plain, refuses, result, start_pair
from hosts import ROCI, Program
from ports import few, several
from rights import NOBODY, with_rights

import capture
import judge


def plain_udp(quick):
    yield from matrix('udp', (256, 1024, 4096), quick)
    yield from happenings('udp')
    yield 'udp: multicasts of the other host', multicast
    yield 'udp: multicasts of another program of this host', own_multicast
    yield 'udp: the frames on the wire are RoCEv2: tshark, ICRC', on_the_wire


def multicast(net):
    """A program that has joined a multicast group must receive the datagrams that the other host sends to this
    group."""
    receive_from(net, net.b)


def own_multicast(net):
    """A program that has joined a multicast group must receive the datagrams that another program of the same device
    sends to this group."""
    receive_from(net, net.a)


def receive_from(net, sender):
    """The sender sends exactly the messages that the receiver waits for, so no message may be lost. mckey's sender
    destroys its address handle without waiting for completions."""
    for group, of in (('239.79.0.1', 'ipv4'), ('ff15::79:1', 'ipv6')):
        words = [f'mckey -m {group} -b {getattr(host, of)} -C 5' for host in (net.a, sender)]
        receiver = net.a.rdma(words[0])
        try:
            net.wait(lambda: net.a.status()['totals']['cm_groups'] > 0, f'mckey does not join:\n{receiver.output()}')
            sender.rdma_once(f'{words[1]} -s')
            with contextlib.suppress(subprocess.TimeoutExpired):
                receiver.process.wait(10)
            check(receiver.process.poll() == 0 and 'return status 0' in receiver.output(), f'{words[0]} receives too little:\n{receiver.output()}')
        finally:
            receiver.kill()


def passed_on(host):
    """Returns the number of multicast frames that an engine has copied for another engine."""
    return sum(e['counters'].get('multicast_copies', 0) for e in host.status()['host']['engines'])


def across_engines(net):
    """The QPs of the two programs are on different engines, so one engine passes copies to the other engine."""
    before = passed_on(net.a)
    own_multicast(net)
    check(copies := passed_on(net.a) - before, 'no engine has passed a copy to the other')
    return f'{copies} copies'


def two_engines(quick):
    yield from several('udp')(quick)
    yield 'udp, two engines: multicasts of another program of this host', across_engines


def offloads(host, state):
    """Switches the segmentation offloads on or off. If they are on, the kernel passes unsegmented datagrams of
    several frames over the veth pair. A real link never carries such datagrams."""
    host.sh(f'ethtool -K {host.interface} tx-udp-segmentation {state} gro {state}')


def on_the_wire(net):
    """The kernel must cut datagrams into segments. The segments have different IPv4 identifications. tshark must
    accept all frames, and the ICRCs must be right."""
    with tempfile.TemporaryDirectory(prefix='roci-udp-') as folder:
        path = f'{folder}/wire.pcapng'
        os.chmod(folder, 0o777)
        for host in (net.a, net.b):
            offloads(host, 'off')
        watch = Program([*net.a.inside, 'dumpcap', '-q', '-i', net.a.interface, '-f', 'udp port 4791', '-w', path])
        try:
            net.wait(lambda: 'File:' in watch.output(), 'dumpcap does not start')
            cross(net, 'ib_write_bw -s 65536 -n 20')
            cross(net, 'ib_read_bw -s 8192 -n 20', 6)
            time.sleep(0.5)  # dumpcap reads its ring at intervals
        finally:
            watch.kill(signal.SIGINT)
            for host in (net.a, net.b):
                offloads(host, 'on')
        frames = list(capture.frames_of(pathlib.Path(path).read_bytes()))
    ids = {int.from_bytes(f[18:20], 'big') for f in frames if f[12:14] == b'\x08\x00'}
    check(len(ids) > 1, f'the kernel cut nothing into segments: identifications {ids}')
    check(not (why := judge.complaint(frames)), why)
    return f'{len(frames)} frames, identifications to {max(ids)}'


def faulty(host):
    """Makes rocid itself lose and corrupt frames, because netem is not available in every kernel."""
    return '[fault]\ndrop = 0.01\ncorrupt = 0.005\n' + host.device('udp')


# ---- without privilege, and with others --------------------------------------------------------------------------------

def nobody(net):
    """Both rocids run as a user without any capability. Traffic must work."""
    os.chmod(net.folder.name, 0o777)
    try:
        for host in (net.a, net.b):
            host.start(host.device('udp'), under=[word for word in with_rights(()) if 'ipc_lock' not in word] + no_capability())
            status = pathlib.Path(f'/proc/{host.process.pid}/status').read_text()
            check(re.search(rf'^Uid:\s+{NOBODY}\s', status, re.M) and re.search(r'^CapEff:\s+0+$', status, re.M), f'not unprivileged:\n{status}')
        cross(net, 'ibv_rc_pingpong -c -n 100')
        return result(cross(net, 'ib_write_bw -s 65536 -n 200'))
    finally:
        net.a.stop()
        net.b.stop()


def no_capability():
    return ['setpriv', '--inh-caps=-all', '--ambient-caps=-all']


def up_and_down(net):
    """Runs `roci up` on both hosts, then a pair of programs by `roci run`, then `roci down`. All commands run as a
    user without any capability."""
    def roci(host, words):
        folder = f'{net.folder.name}/user{host.number}'
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, NOBODY, NOBODY)
        os.chmod(folder, 0o700)
        under = [word for word in with_rights(()) if 'ipc_lock' not in word] + no_capability()
        return [*host.inside, *under, 'env', '-u', 'ROCI_SOCKET', f'XDG_RUNTIME_DIR={folder}', ROCI, *words.split()]

    def once(host, words):
        done = subprocess.run(roci(host, words), capture_output=True, text=True, timeout=60, check=False)
        check(done.returncode == 0, f'roci {words} returned {done.returncode}:\n{done.stdout}{done.stderr}')
        return done.stdout

    os.chmod(net.folder.name, 0o777)
    try:
        for host in (net.a, net.b):
            check(f'GID 1: {host.ipv4}' in once(host, 'up --interface wire0'), 'the address is not shown')
        words = 'run -- ib_write_bw -d roci0 -x 1 -F -s 65536 -n 100 -p 18580'
        server = Program(roci(net.a, words))
        net.a.wait_listening(18580, server)
        client = Program(roci(net.b, f'{words} {net.a.ipv4}'))
        check((client.wait(30), server.wait(30)) == (0, 0), client.output() + server.output())
        return result(client.output())
    finally:
        for host in (net.a, net.b):
            check('has ended' in once(host, 'down'), 'roci down')


def with_af_packet(net):
    """The kernel of host a cuts datagrams into frames. The rocid of host b receives these frames by a packet socket,
    so it receives them as from a NIC."""
    offloads(net.a, 'off')
    net.a.start(net.a.device('udp'))
    net.b.start(net.b.device('af_packet'))
    try:
        cross(net, 'ibv_rc_pingpong -c -n 200')
        cross(net, 'ibv_rc_pingpong -c -n 200', 6)
        cross(net, 'ib_read_bw -s 65536 -n 50')
        return result(cross(net, 'ib_write_bw -s 65536 -n 100'))
    finally:
        net.a.stop()
        net.b.stop()
        offloads(net.a, 'on')


def two_on_lo(net):
    """Two rocids run on different addresses of the same host. Both must work."""
    other = type(net.a)(net.a.namespace, 'lo', 9, net.folder.name)
    net.a.start(net.a.device('udp', interface='lo', addresses=['127.0.0.1/8']))
    other.start(other.device('udp', interface='lo', addresses=['127.0.0.2/8']))
    try:
        words = 'ibv_rc_pingpong -d roci0 -g 1 -c -n 100 -p 18590'
        server = net.a.rdma(words)
        net.a.wait_listening(18590, server)
        client = other.rdma(words + ' 127.0.0.1')
        check((client.wait(30), server.wait(30)) == (0, 0), client.output() + server.output())
    finally:
        other.stop()
        net.a.stop()


def port_in_use(net):
    holder = Program([*net.a.inside, 'python3', '-c', 'import socket,time; s=socket.socket(type=socket.SOCK_DGRAM); s.bind(("", 4791)); print("bound", flush=True); time.sleep(60)'])
    try:
        net.wait(lambda: 'bound' in holder.output(), 'port 4791 cannot be bound')
        return refuses(net.a, net.a.device('udp'), 'UDP port 4791 is in use', 'ss -ulpn')
    finally:
        holder.kill()


def not_ours(net):
    return refuses(net.a, net.a.device('udp', addresses=['10.99.99.99/24']), '10.99.99.99 is no address of this host', 'ip addr add')


def filtered(net):
    """The route to the peer becomes unreachable during traffic. The program must fail, and `roci status` must print
    the reason."""
    for host in (net.a, net.b):
        host.start(host.device('udp'))
    try:
        server, client = start_pair(net, 'ib_write_bw -s 65536 -D 20 -u 10')
        try:
            time.sleep(2)
            net.b.sh(f'ip route add unreachable {net.a.ipv4}/32')
            status = client.wait(60)
        finally:
            client.kill()
            server.kill()
            net.b.sh(f'ip route del unreachable {net.a.ipv4}/32')
        check(status != 0, f'client returned 0:\n{client.output()}')
        said = net.b.status()['host']['ports'][0]['udp']
        check(said.get('unreachable', 0) > 0 and said.get('last_error'), f'{said}')
        return f'{said["unreachable"]} frames: {said["last_error"]}'
    finally:
        net.a.stop()
        net.b.stop()


def alone(quick):
    yield 'udp: a user without any capability: pingpong, ib_write_bw', nobody
    yield 'udp: roci up, roci run, roci down by a user without any capability', up_and_down
    yield 'udp to af_packet: pingpong over both families, bandwidth', with_af_packet
    yield 'udp: two rocids on addresses of lo', two_on_lo
    yield 'udp: port 4791 is in use', port_in_use
    yield 'udp: an address that is not this host\'s', not_ours
    yield 'udp: no route any more: the status for it, and the reason in roci status', filtered


GROUPS = [
    Group('udp', plain_udp, plain('udp')),
    Group('udp, MTU 1500', lambda quick: few('udp, MTU 1500', 'ib_write_bw -s 65536 -n 200'), plain('udp'), mtu=1500),
    Group('udp, 1 % loss', lambda quick: few('udp, 1 % lost, 0.5 % corrupt', 'ib_write_bw -s 65536 -n 200', 'ib_read_bw -s 65536 -n 100'), faulty, judged=False),
    Group('udp, two engines', two_engines, plain('udp', 2)),
    Group('udp, alone', alone),
]
