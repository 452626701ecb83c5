"""Tests of ports that cannot be opened, and of interfaces that change. If rocid can open none of its ports, it must
print one line with a remedy and exit with 1. If rocid can open only some of them, it must serve these. (rights.py
tests missing permissions.)"""
import json
import pathlib

from cases import Group, check, cross, port_state, refuses, restore_ipv6, start_pair, wait_state

WITHOUT_XDP = pathlib.Path(__file__).with_name('without_xdp.py')


def others_go_on(net):
    """rocid must report a port that cannot be opened, and must serve the other device."""
    net.a.start(net.a.device('af_packet') + '[[device]]\nname = "roci1"\nport = "af_packet"\ninterface = "nowhere0"\n')
    net.b.start(net.b.device('af_packet'))
    try:
        check("there is no network interface 'nowhere0'" in net.a.log(), net.a.log())
        cross(net, 'ibv_rc_pingpong -n 100')
    finally:
        net.a.stop()
        net.b.stop()


def starts_down(net):
    """If an interface is down, the port must be down. When the interface comes up, the port must become active."""
    net.a.ip(f'link set {net.a.interface} down')
    net.a.start(net.a.device('af_packet'))
    try:
        check('ip link set wire0 up' in net.a.log(), net.a.log())
        check(port_state(net.a) == 'PORT_DOWN', port_state(net.a))
        net.a.ip(f'link set {net.a.interface} up')
        wait_state(net.a, 'PORT_ACTIVE')
    finally:
        net.a.stop()
        net.a.ip(f'link set {net.a.interface} up')
        restore_ipv6(net)


def small_mtu(net):
    net.a.ip(f'link set {net.a.interface} mtu 300')
    try:
        return refuses(net.a, net.a.device('af_packet'), 'has MTU 300', 'ip link set wire0 mtu 1500')
    finally:
        net.a.ip(f'link set {net.a.interface} mtu {net.mtu}')


def large_mtu(net):
    """veth does not support XDP with frames that are larger than a page. So rocid must refuse af_xdp here."""
    return refuses(net.a, net.a.device('af_xdp'), f'MTU {net.mtu}', 'ip link set wire0 mtu')


def no_address(net):
    """If the interface has no address, rocid must report this. After the interface has got an address, traffic must
    work."""
    net.a.ip(f'addr flush dev {net.a.interface}')
    net.a.start(net.a.device('af_packet'))
    try:
        check('interface wire0 has no address' in net.a.log() and 'ip addr add' in net.a.log(), net.a.log())
        net.a.ip(f'addr add {net.a.ipv4}/24 dev {net.a.interface}')
        net.b.start(net.b.device('af_packet'))
        cross(net, 'ibv_rc_pingpong -n 100')
    finally:
        net.a.stop()
        net.b.stop()
        restore_ipv6(net)


def without_xdp(what, *texts):
    return lambda net: refuses(net.a, net.a.device('af_xdp'), *texts, under=[str(WITHOUT_XDP), what])


def new_mac(net):
    """The MAC address of the interface changes while rocid runs. rocid must report the change. New and existing
    connections must work."""
    mac = json.loads(net.a.ip(f'-j link show {net.a.interface}'))[0]['address']
    for host in (net.a, net.b):
        host.start(host.device('af_packet'))
    server, client = start_pair(net, 'ib_write_bw -s 65536 -D 2')
    try:
        net.a.ip(f'link set {net.a.interface} address 02:00:00:00:0a:0b')
        status = client.wait(60), server.wait(60)
        check(status == (0, 0), f'the connection that there was: {status}\n{client.output()[-800:]}')
        check('has the MAC 02:00:00:00:0a:0b now' in net.a.log(), net.a.log())
        cross(net, 'ibv_rc_pingpong -n 100')
    finally:
        client.kill()
        server.kill()
        net.a.stop()
        net.b.stop()
        net.a.ip(f'link set {net.a.interface} address {mac}')


def port(kind, **keys):
    return lambda net: net.a.device(kind, **keys).replace('interface = "wire0"\n', '' if 'interface' not in keys else f'interface = "{keys["interface"]}"\n')


def row(config, *texts):
    return lambda net: refuses(net.a, config(net), *texts)


def bad_input(quick):
    yield 'no such interface', row(port('af_packet', interface='nowhere0'), "no network interface 'nowhere0'", 'ip link')
    yield 'no such interface, af_xdp', row(port('af_xdp', interface='nowhere0'), "no network interface 'nowhere0'", 'ip link')
    yield 'no such interface, other devices go on', others_go_on
    yield 'an interface that is down', starts_down
    yield 'an interface without an address', no_address
    yield 'an interface with too small an MTU', small_mtu
    yield 'af_xdp: an interface with too large an MTU', large_mtu
    yield 'an interface whose MAC changes under traffic', new_mac
    yield 'af_xdp: more engines than queues', row(lambda net: '[engine]\ncount = 2\n' + net.a.device('af_xdp'), 'ethtool -L wire0', 'engine.count = 1')
    yield 'af_xdp: a kernel without AF_XDP sockets', without_xdp('sockets', 'AF_XDP', 'af_packet')
    yield 'af_xdp: a kernel without bpf', without_xdp('bpf', 'Function not implemented', 'af_packet')
    yield 'tap: the name is taken', row(port('tap', interface='wire0'), "interface 'wire0'", 'exists')
    yield 'pci: no such NIC', row(port('pci', pci='0000:ff:1f.7'), 'there is no PCI device 0000:ff:1f.7', 'lspci -D')
    yield 'vhost_user: no such folder', row(port('vhost_user', path='/nowhere/at.all'), '/nowhere', 'folder')
    yield 'vhost_user: the name is a file\'s', row(port('vhost_user', path='/etc/hostname'), '/etc/hostname', 'is no socket')
    yield 'virtio_user: nobody serves the socket', row(port('virtio_user', path='/tmp/nobody.sock', role='client'), '/tmp/nobody.sock', 'socket')
    yield 'memif: no such folder', row(port('memif', path='/nowhere/at.all'), '/nowhere', 'folder')


GROUPS = [Group('bad input', bad_input)]
