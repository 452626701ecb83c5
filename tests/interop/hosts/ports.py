"""Tests of further kinds of ports: TAPs, interfaces without native XDP, VLANs, several queues, packet sockets and
shared memory."""
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile

from cases import XDP_MTU, Group, check, cross, plain, refuses, result, wait_state
from hosts import ROCI, ROCID, Program, run

import dissect
import judge

VLAN = 100


def few(kind, *all_words, families=(4, 6)):
    """Yields one case per command and address family."""
    for words in all_words:
        for family in families:
            yield f'{kind}: {words}' + (', IPv6' if family == 6 else ''), lambda net, w=words, f=family: result(cross(net, w, f))


# ---- a bridge between the wire and the device ------------------------------------------------------------------------

def bridge(net):
    """Moves the addresses of the kernel to a bridge, and makes the interface of the link a port of the bridge."""
    for host in (net.a, net.b):
        host.ip('addr flush dev wire0')
        host.ip('link add br0 type bridge')
        host.ip('link set wire0 master br0')
        host.ip(f'link set br0 mtu {net.mtu} up')
        host.ip(f'addr add {host.ipv4}/24 dev br0')
        host.ip(f'addr add {host.ipv6}/64 dev br0 nodad')


def on_bridge(net):
    bridge(net)
    for host in (net.a, net.b):
        host.interface = 'br0'


def own(host, network):
    """Gives a host addresses that its kernel does not have. Returns the configuration keys of a device with these
    addresses."""
    host.roce = {4: f'10.79.{network}.{host.number}', 6: f'fd79:{network}::{host.number}'}
    return {'addresses': [f'{host.roce[4]}/24', f'{host.roce[6]}/64']}


def tap_config(host):
    return host.device('tap', interface='rtap0', mac=f'02:00:00:00:01:0{host.number}', **own(host, 1))


def tap_joins(net):
    """Makes the kernel's end of the tap a port of the bridge. Gives this end a MAC address that differs from
    rocid's."""
    for host in (net.a, net.b):
        host.ip(f'link set rtap0 address 02:00:00:00:02:0{host.number} master br0 up')


def tap(quick):
    yield from few('tap to tap, by bridges', 'ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 100')
    yield 'tap to tap: the kernel pings it', lambda net: ping(net.a, net.b.roce[4], '10.79.1.77')


def ping(host, address, source):
    """Gives the kernel an address in the network of the device, and pings the device from this address."""
    host.ip(f'addr add {source}/24 dev br0')
    said = host.sh(f'ping -c 5 -i 0.1 -W 2 {address}')
    check(' 0% packet loss' in said, said)


def generic(quick):
    def mode(net):
        check(net.a.xdp()['mode'] == 'generic', f'{net.a.xdp()}')
        check('generic (slower' in net.a.log(), net.a.log())
    yield from few('af_xdp, generic (a bridge)', 'ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 100')
    yield 'af_xdp, generic: said in the log and by roci status', mode


# ---- several queues --------------------------------------------------------------------------------------------------

def spread(net):
    """Both engines must have received frames. An engine may get frames from its own queues or from the other
    engine."""
    received = [e['counters']['rx_frames'] for e in net.a.status()['host']['engines']]
    check(len(received) == 2 and all(n > 100 for n in received), f'frames received by engine: {received}')
    return f'{received} frames by engine'


def several(kind):
    def cases(quick):
        yield from few(f'{kind}, two engines', 'ib_write_bw -s 65536 -n 100 -q 4', 'ib_send_bw -s 4096 -n 500 -q 8', families=(4,))
        yield f'{kind}, two engines: both receive', spread
    return cases


# ---- VLANs -----------------------------------------------------------------------------------------------------------

def kernel_vlan(net):
    """Makes a VLAN interface of the kernel on host b. Host a gets no VLAN interface."""
    net.b.ip(f'link add wire0.{VLAN} link wire0 type vlan id {VLAN}')
    net.b.ip(f'link set wire0.{VLAN} up')
    net.b.ip(f'addr add 10.79.2.2/24 dev wire0.{VLAN}')
    net.b.ip(f'addr add fd79:2::2/64 dev wire0.{VLAN} nodad')
    net.b.roce = {4: '10.79.2.2', 6: 'fd79:2::2'}


def own_or_kernel_vlan(host):
    """Returns the configuration of the device. On host a rocid adds the VLAN tag, on host b the kernel adds it."""
    return host.device('af_packet', vlan=VLAN, **own(host, 2)) if host.number == 1 else host.device('af_packet', interface=f'wire0.{VLAN}')


def own_vlan(kind):
    return lambda host: host.device(kind, vlan=VLAN, **own(host, 2))


def no_kernel_vlan():
    name = f'roci-try-{os.getpid()}'
    run(f'ip netns add {name}')
    try:
        run(f'ip -n {name} link add left0 type veth peer name right0')
        made = subprocess.run(shlex.split(f'ip -n {name} link add left0.1 link left0 type vlan id 1'), capture_output=True, text=True, check=False)
    finally:
        run(f'ip netns del {name}')
    return '' if made.returncode == 0 else f'this kernel has no VLAN interfaces (8021q): {made.stderr.strip()}'


def captured(host, body, fields):
    """Runs body() and captures the frames of the host's device. Returns the given tshark fields of all RoCEv2 frames
    as a set of tuples."""
    watch = judge.Watch(ROCI, host.socket, 64 << 20)
    try:
        body()
    finally:
        frames = watch.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'frames.pcap')
        judge.write(path, frames)
        rows = dissect.tshark(path, '-Y', 'infiniband', '-T', 'fields', '-E', 'occurrence=f', *(word for f in fields for word in ('-e', f)))
    return {tuple(row.split('\t')) for row in rows}


def asked_for(net):
    """All requests and responses must have the VLAN, the priority (service level) and the traffic class that perftest
    has requested."""
    words = 'ib_write_bw -s 4096 -n 50 -S 5 --tclass=104'
    seen = captured(net.a, lambda: cross(net, words), ('vlan.id', 'vlan.priority', 'ip.dsfield'))
    check(seen == {(str(VLAN), '5', '0x68')}, f'{words}: VLAN, priority, DS field: {seen}')
    seen = captured(net.a, lambda: cross(net, words, 6), ('vlan.id', 'vlan.priority', 'ipv6.tclass'))
    check(seen in ({(str(VLAN), '5', '0x00000068')}, {(str(VLAN), '5', '0x68')}), f'{words}, IPv6: VLAN, priority, traffic class: {seen}')


def kernel_pings_vlan(net):
    """rocid must answer ARP, neighbour discovery and echo requests. The answers must have the VLAN tag."""
    for address in net.a.roce.values():
        said = net.b.sh(f'ping -c 5 -i 0.1 -W 2 {address}')
        check(' 0% packet loss' in said, said)


def vlan(quick):
    yield from few('VLAN, ours to the kernel\'s interface', 'ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 100')
    yield 'VLAN, the kernel\'s interface: the kernel pings the device through its tag', kernel_pings_vlan


def vlan_packet(quick):
    yield from few('VLAN over af_packet', 'ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 100')
    yield 'VLAN over af_packet: tag, priority and traffic class are what was asked for', asked_for


def vlan_xdp(quick):
    def steered(net):
        check(net.a.xdp()['steered'] > 1000, f'{net.a.xdp()}')
        said = net.b.sh(f'ping -c 5 -i 0.1 -W 2 {net.a.ipv4}')
        check(' 0% packet loss' in said, f'what is not in the VLAN is the kernel\'s as ever: {said}')
    yield from few('VLAN over af_xdp', 'ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 100')
    yield 'VLAN over af_xdp: tag, priority and traffic class are what was asked for', asked_for
    yield 'VLAN over af_xdp: tagged frames are steered, the others pass', steered


# ---- shared memory ---------------------------------------------------------------------------------------------------

def end_of(host, kind, role, path):
    return (f'[[device]]\nname = "roci0"\nport = "{kind}"\npath = "{path}"\nrole = "{role}"\nmac = "02:00:00:00:00:0{host.number}"\n'
            f'addresses = ["{host.ipv4}/24", "{host.ipv6}/64"]\n')


def joined(server_kind, client_kind, crashed=False):
    """Returns a case in which the ports of two rocids are the ends of one Unix socket. If `crashed` is true, a killed
    rocid has left its socket file."""
    def body(net):
        path = f'{net.folder.name}/{server_kind}.sock'
        try:
            if crashed:
                net.a.start(end_of(net.a, server_kind, 'server', path))
                net.a.stop(signal.SIGKILL)
                check(os.path.exists(path), 'no socket is left behind: nothing is tried')
            net.a.start(end_of(net.a, server_kind, 'server', path))
            check(('was deserted' in net.a.log()) == crashed, net.a.log())
            net.b.start(end_of(net.b, client_kind, 'client', path))
            for host in (net.a, net.b):
                wait_state(host, 'PORT_ACTIVE')
            cross(net, 'ibv_rc_pingpong -c -n 200')
            return result(cross(net, 'ib_write_bw -s 65536 -n 500'))
        finally:
            net.b.stop()
            net.a.stop()
    return body


def shared_memory(quick):
    yield 'vhost_user to virtio_user: pingpong, ib_write_bw', joined('vhost_user', 'virtio_user')
    yield 'memif to memif: pingpong, ib_write_bw', joined('memif', 'memif')
    for kind, client in (('vhost_user', 'virtio_user'), ('memif', 'memif')):
        yield f'{kind}: the socket of a rocid that was killed is made anew', joined(kind, client, crashed=True)
        yield f'{kind}: the socket is taken', taken(kind)
    yield 'virtio_user as a server: ends on a signal while it waits for its client', waits


def taken(kind):
    """Returns a case in which a second rocid uses the same socket. It must report the conflict and must not remove
    the socket file."""
    def body(net):
        path = f'{net.folder.name}/{kind}.sock'
        net.a.start(end_of(net.a, kind, 'server', path))
        try:
            refuses(net.b, end_of(net.b, kind, 'server', path), path, f'is taken by another rocid (process {net.a.process.pid})', "change the key 'path'")
            check(os.path.exists(path), 'its socket is gone')
        finally:
            net.a.stop()
    return body


def waits(net):
    path = f'{net.folder.name}/virtio.sock'
    pathlib.Path(net.a.config_path).write_text('[memory]\nmbufs = 4096\n' + end_of(net.a, 'virtio_user', 'server', path))
    rocid = Program([*net.a.inside, str(ROCID), '--config', net.a.config_path, '--socket', net.a.socket])
    try:
        net.wait(lambda: os.path.exists(path), 'no socket')
        net.wait(lambda: 'waits for the vhost_user end' in rocid.output(), 'no word that it waits')
        rocid.process.terminate()
        rocid.wait(20)
    finally:
        rocid.kill()


GROUPS = [
    Group('af_packet, two engines', several('af_packet'), plain('af_packet', 2)),
    Group('af_xdp, two engines', several('af_xdp'), plain('af_xdp', 2), mtu=XDP_MTU, queues=2),
    Group('af_xdp, generic', generic, plain('af_xdp'), prepare=on_bridge, mtu=XDP_MTU),
    Group('tap', tap, tap_config, prepare=bridge, started=tap_joins),
    Group('VLAN, the kernel\'s interface', vlan, own_or_kernel_vlan, prepare=kernel_vlan, why_not=no_kernel_vlan),
    Group('VLAN over af_packet', vlan_packet, own_vlan('af_packet')),
    Group('VLAN over af_xdp', vlan_xdp, own_vlan('af_xdp'), mtu=XDP_MTU),
    Group('shared memory', shared_memory),
]
