"""Tests of port = "udp" with faults of the network or of the host. rocid must report the fault or work in spite of
the fault, and must keep running."""
import contextlib
import os
import re
import shutil
import subprocess
import time

from cases import Group, check, cross, plain, port_state, received, refuses, start_pair, wait_flowing
from hosts import ROCI
from rights import with_rights

LARGE = '-s 65536 -D 20 -u 10'


@contextlib.contextmanager
def both_up(net):
    for host in (net.a, net.b):
        host.start(host.device('udp'))
    try:
        yield
    finally:
        net.a.stop()
        net.b.stop()


@contextlib.contextmanager
def rule(host, words):
    """During a `with` block, the firewall of the host has an additional rule."""
    host.sh(f'iptables -w {words}')
    try:
        yield
    finally:
        host.sh('iptables -w ' + words.replace('-A ', '-D '))


@contextlib.contextmanager
def frame_by_frame(host):
    """During a `with` block, the kernel of the host cuts datagrams into frames before it sends them, as a NIC would
    do."""
    host.sh(f'ethtool -K {host.interface} tx-udp-segmentation off')
    try:
        yield
    finally:
        host.sh(f'ethtool -K {host.interface} tx-udp-segmentation on')


def udp_of(host):
    return host.status()['host']['ports'][0]['udp']


def why(host, output):
    """`output` is the output of a perftest. Returns what `roci why` prints about its QP."""
    qpn = int(re.search(r'local address:.* QPN (0x[0-9a-f]+)', output)[1], 16)
    return subprocess.run([ROCI, 'why', '--socket', host.socket, str(qpn)], capture_output=True, text=True, timeout=30, check=False).stdout


def fails(net, *texts):
    """The client on host b must end with status 12 (retries exceeded). `roci why` must print the given texts."""
    server, client = start_pair(net, f'ib_write_bw {LARGE}')
    try:
        status = client.wait(60)
    finally:
        client.kill()
        server.kill()
    check(status != 0 and 'status 12' in client.output(), f'client returned {status}:\n{client.output()[-1500:]}')
    said = why(net.b, client.output())
    for text in texts:
        check(text in said, f'"{text}" is not in:\n{said}')


# ---- port 4791 is another's ---------------------------------------------------------------------------------------------

def another_rocid(net):
    net.a.start(net.a.device('udp'))
    try:
        other = type(net.a)(net.a.namespace, net.a.interface, 9, net.folder.name)
        refuses(other, other.device('udp'), 'UDP port 4791 is in use', 'another rocid', 'rdma link')
    finally:
        net.a.stop()


def small_buffers(net):
    """Without CAP_NET_ADMIN the kernel limits the sizes of socket buffers. rocid's message must contain the sysctl
    that raises the limit."""
    os.chmod(net.folder.name, 0o777)
    net.a.start(net.a.device('udp'), under=[word for word in with_rights(()) if 'ipc_lock' not in word])
    try:
        if udp_of(net.a)['receive_buffer'] >= 4 << 20:
            return 'this kernel grants large buffers to everybody'
        check('sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608' in net.a.log(), net.a.log())
        return f"{udp_of(net.a)['receive_buffer'] >> 10} KiB"
    finally:
        net.a.stop()


# ---- the network ----------------------------------------------------------------------------------------------------------

def filtered_here(net):
    """The firewall of the sender refuses each send. `roci status` must print the error."""
    with both_up(net), rule(net.b, '-A OUTPUT -p udp --dport 4791 -j DROP'):
        fails(net, 'the peer did not answer', 'UDP port 4791')
        check('permitted' in udp_of(net.b).get('last_error', ''), f'{udp_of(net.b)}')
        return udp_of(net.b)['last_error']


def filtered_there(net):
    """The firewall of the peer drops the frames without a reply. The output of `roci why` must contain the UDP
    port."""
    with both_up(net), rule(net.a, '-A INPUT -p udp --dport 4791 -j DROP'):
        fails(net, 'the peer did not answer', 'UDP port 4791')


def rejected_there(net):
    """The firewall of the peer replies by ICMP. Any host could forge such messages, so the QP may fail only after the
    retries are used up."""
    with both_up(net), rule(net.a, '-A INPUT -p udp --dport 4791 -j REJECT'):
        fails(net, 'the peer did not answer', 'UDP port 4791')


def black_hole(net):
    """The path drops long packets without a reply, but passes short packets. The output of `roci why` must contain
    the path MTU."""
    with both_up(net), frame_by_frame(net.b), rule(net.a, '-A INPUT -p udp --dport 4791 -m length --length 1501:65535 -j DROP'):
        cross(net, 'ibv_rc_pingpong -s 1024 -n 100')
        fails(net, 'frames of the path MTU')
        cross(net, 'ib_write_bw -s 65536 -n 100 -m 1024')  # works with a smaller path MTU


def shorter_route(net):
    """The MTU of the route is smaller than the MTU of the interface. rocid must count the frames that are too long
    for the route."""
    with both_up(net):
        net.b.sh(f'ip route add {net.a.ipv4}/32 dev {net.b.interface} mtu lock 1500')
        try:
            fails(net, 'frames of the path MTU')
            check(udp_of(net.b).get('too_long', 0) > 0, f'{udp_of(net.b)}')
            cross(net, 'ib_write_bw -s 65536 -n 100 -m 1024')
            return f"too_long {udp_of(net.b)['too_long']}"
        finally:
            net.b.sh(f'ip route del {net.a.ipv4}/32 dev {net.b.interface}')


def nat(net):
    """A NAT changes the source port. The ICRC covers this port. So the peer must drop the frames and count them as
    port_changed."""
    with both_up(net), rule(net.b, '-t nat -A POSTROUTING -p udp --dport 4791 -j MASQUERADE --to-ports 20000-20100'):
        fails(net, 'the peer did not answer')
        said = udp_of(net.a)
        check(said.get('port_changed', 0) > 0, f'{said}')
        return f"port_changed {said['port_changed']}"


FRAGMENTS = 'import socket; s=socket.socket(type=socket.SOCK_DGRAM); [s.sendto(bytes([4, 0, 255, 255]) + bytes(n), ("{to}", 4791)) for n in (5000, 9000, 40000) * 20]'


def fragments(net):
    """The kernel reassembles fragments. The resulting datagrams are larger than a frame. rocid must count these
    datagrams (too_large), and traffic must continue."""
    with both_up(net):
        cross(net, 'ibv_rc_pingpong -c -n 100')
        before = udp_of(net.a).get('too_large', 0)
        net.b.sh(f"python3 -c '{FRAGMENTS.format(to=net.a.ipv4)}'")
        time.sleep(0.2)
        cross(net, 'ibv_rc_pingpong -c -n 100')
        grown = udp_of(net.a).get('too_large', 0) - before
        check(grown == 60, f'too_large grew by {grown}')


def lossy(net):
    """The kernels drop 1 % of the frames in each direction. The losses are independent of each other. All programs
    must succeed."""
    with both_up(net), frame_by_frame(net.b), frame_by_frame(net.a), \
            rule(net.a, '-t raw -A PREROUTING -p udp --dport 4791 -m statistic --mode random --probability 0.01 -j DROP'), \
            rule(net.b, '-t raw -A PREROUTING -p udp --dport 4791 -m statistic --mode random --probability 0.01 -j DROP'):
        for words in ('ibv_rc_pingpong -c -n 2000', 'ib_write_bw -s 65536 -n 500', 'ib_read_bw -s 65536 -n 300', 'ib_send_bw -s 65536 -n 300'):
            cross(net, words)


# ---- the interface --------------------------------------------------------------------------------------------------------

def goes_away(net):
    """The interface is deleted during traffic. The port must go down, requests must end with status 12, and rocid
    must keep serving."""
    before = received(net.a)
    server, client = start_pair(net, 'ib_write_bw -s 65536 -D 20 -u 10')
    try:
        wait_flowing(net.a, before)
        net.b.ip(f'link del {net.b.interface}')
        net.wait(lambda: 'the port is down' in net.b.log(), f'rocid says nothing:\n{net.b.log()}')
        check(client.wait(60) != 0 and 'status 12' in client.output(), client.output()[-1500:])
    finally:
        client.kill()
        server.kill()
    check(port_state(net.b) == 'PORT_DOWN', port_state(net.b))
    return [line for line in net.b.log().splitlines() if 'the port is down' in line][-1]


def without_firewall():
    return '' if shutil.which('iptables') else 'iptables is not installed (./dev setup)'


def bad_host(quick):
    yield 'udp: port 4791 is another rocid\'s', another_rocid
    yield 'udp: small socket buffers: the line names the sysctl', small_buffers
    yield 'udp: a route with a smaller MTU: too_long, and -m 1024 works', shorter_route
    yield 'udp: fragments that are no frames', fragments


def bad_network(quick):
    yield 'udp: the own firewall drops port 4791', filtered_here
    if not quick:
        yield 'udp: the peer\'s firewall drops port 4791', filtered_there
        yield 'udp: the peer\'s firewall rejects port 4791', rejected_there
    yield 'udp: an MTU black hole', black_hole
    yield 'udp: a NAT that rewrites ports', nat
    yield 'udp: the kernel loses 1 % of the frames, both ways', lossy


GROUPS = [
    Group('udp, bad host', bad_host, judged=False),
    Group('udp, bad network', bad_network, judged=False, why_not=without_firewall),
    Group('udp, interface', lambda quick: [('udp: the interface goes away under traffic', goes_away)], plain('udp'), judged=False),
]
