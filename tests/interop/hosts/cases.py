"""Traffic between the hosts, and changes of the link."""
import dataclasses
import itertools
import json
import re
import time
from typing import Callable, Optional

from hosts import Failure, run

PORT = itertools.count(18600)


def fail(why):
    raise Failure(why)


def check(condition, why):
    if not condition:
        fail(why)


# ---- pairs -----------------------------------------------------------------------------------------------------------

def commands(net, words, family, device='roci0'):
    port = next(PORT)
    perftest = words.startswith('ib_')
    both = f'{words.split()[0]} -d {device} -p {port} ' + ' '.join(words.split()[1:]) + (' -F' if perftest else '')
    gid = '-x' if perftest else '-g'
    return port, [f'{both} {gid} {net.a.gid(family)}', f'{both} {gid} {net.b.gid(family)} {net.a.ipv4}']


def start_pair(net, words, family=4):
    port, (server_words, client_words) = commands(net, words, family)
    net.wire.begin(net.a)
    server = net.a.rdma(server_words)
    try:
        net.a.wait_listening(port, server)
        return server, net.b.rdma(client_words)
    except Failure:
        server.kill()
        raise


def cross(net, words, family=4, limit=60):
    """Runs a server on one host and a client on the other host. Both must return 0. Returns the output of the
    client."""
    server, client = start_pair(net, words, family)
    try:
        status = client.wait(limit), server.wait(limit)
    finally:
        client.kill()
        server.kill()
    outputs = f'server:\n{server.output()[-900:]}\nclient:\n{client.output()[-900:]}'
    check(status == (0, 0), f'{words}: client and server returned {status}\n{outputs}')
    return client.output()


def result(output):
    """Returns the last result line of a perftest in a shortened form."""
    lines = [line.split() for line in output.splitlines() if re.match(r'^\s+\d+\s+\d+\s+[\d.]+', line)]
    if not lines:
        return ''
    return f'{lines[-1][0]} B: ' + (f'{lines[-1][3]} MB/s' if 'BW average' in output else f'{lines[-1][4]} us typical')


MATRIX = [
    'ibv_rc_pingpong -c -n 200', 'ibv_uc_pingpong -n 200 -s 1024', 'ibv_ud_pingpong -n 200 -s 1024', 'ibv_srq_pingpong -n 200',
    'ib_send_bw -a -n 20', 'ib_write_bw -a -n 20', 'ib_read_bw -a -n 20', 'ib_send_lat -n 200', 'ib_send_lat -e -n 1000', 'ib_write_lat -n 200', 'ib_read_lat -n 200',
    'ib_atomic_lat -n 200', 'ib_write_bw -s 4096 -n 500 -q 16', 'ib_send_bw -c UD -s 1024 -n 200 -r 512',
]
QUICK = {'ibv_rc_pingpong -c -n 200', 'ib_send_bw -a -n 20', 'ib_write_bw -a -n 20', 'ib_read_bw -a -n 20', 'ib_send_lat -n 200', 'ib_send_lat -e -n 1000',
         'ib_write_bw -s 4096 -n 500 -q 16'}

QUICKER = {'ib_send_bw -a -n 20': 'ib_send_bw -s 65536 -n 200', 'ib_write_bw -a -n 20': 'ib_write_bw -a -n 5', 'ib_read_bw -a -n 20': 'ib_read_bw -s 65536 -n 200'}


def matrix(kind, mtus, quick):
    for words in MATRIX:
        if not quick or words in QUICK:
            words = QUICKER.get(words, words) if quick else words
            yield f'{kind}: {words}', lambda net, w=words: result(cross(net, w))
    for words in ('ibv_rc_pingpong -c -n 200', 'ib_write_bw -s 65536 -n 200'):
        yield f'{kind}: {words}, IPv6', lambda net, w=words: result(cross(net, w, 6))
    for mtu in mtus:
        yield f'{kind}: path MTU {mtu}', lambda net, m=mtu: result(cross(net, f'ib_write_bw -s 65536 -n 100 -m {m}'))


# ---- changes of the wire ---------------------------------------------------------------------------------------------

def port_state(host):
    return re.search(r'state:\s+(\w+)', host.rdma_once('ibv_devinfo -d roci0'))[1]


def wait_state(host, wanted, limit=10):
    end = time.monotonic() + limit
    while (state := port_state(host)) != wanted:
        check(time.monotonic() < end, f'port of host {host.number} is {state}, not {wanted}')
        time.sleep(0.1)


def received(host):
    return sum(e['counters']['rx_frames'] for e in host.status()['host']['engines'])


def wait_flowing(host, before, limit=20):
    """Waits until many frames have arrived. They prove that RDMA traffic runs and that the TCP exchange of the
    programs on the same link has ended."""
    end = time.monotonic() + limit
    while received(host) < before + 1000:
        check(time.monotonic() < end, 'no traffic')
        time.sleep(0.1)


def watched(host, body):
    """Returns the asynchronous events that a program on the host receives while body() runs."""
    watcher = host.rdma('stdbuf -oL ibv_asyncwatch -d roci0')
    try:
        time.sleep(1)
        body()
        time.sleep(1)
    finally:
        watcher.kill()
    return watcher.output()


def short_flap(net):
    """The link is down for a time that is shorter than the timeouts of the transport. The traffic must continue."""
    def flap():
        before = received(net.a)
        server, client = start_pair(net, 'ib_write_bw -s 65536 -D 4 -u 16')
        try:
            wait_flowing(net.a, before)
            net.b.ip(f'link set {net.b.interface} down')
            time.sleep(0.4)
            net.b.ip(f'link set {net.b.interface} up')
            status = client.wait(60), server.wait(60)
        finally:
            client.kill()
            server.kill()
        check(status == (0, 0), f'after a flap of 0.4 s: {status}\n{client.output()[-800:]}\n{server.output()[-800:]}')
    events = watched(net.a, flap)
    check(re.search(r'port error|PORT_ERR', events), f'no port error event:\n{events}')
    check(re.search(r'port active|PORT_ACTIVE', events), f'no port active event:\n{events}')
    restore_ipv6(net)


def restore_ipv6(net):
    """When an interface goes down, the kernel removes its IPv6 addresses. This function adds them again."""
    for host in (net.a, net.b):
        host.ip(f'addr add {host.ipv6}/64 dev {host.interface} nodad', check=False)


def long_flap(net):
    """The link is down for a time that is longer than the timeouts of the transport. Requests must fail with "retry
    exceeded". After the link is up, a new connection must work."""
    before = received(net.a)
    server, client = start_pair(net, 'ib_write_bw -s 65536 -D 8 -u 10')
    try:
        wait_flowing(net.a, before)
        net.b.ip(f'link set {net.b.interface} down')
        wait_state(net.b, 'PORT_DOWN')
        status = client.wait(40)
    finally:
        client.kill()
        server.kill()
        net.b.ip(f'link set {net.b.interface} up')
    text = client.output()
    check(status != 0 and re.search(r'status 12|transport retry counter exceeded', text), f'client returned {status}:\n{text[-1500:]}')
    for host in (net.a, net.b):
        wait_state(host, 'PORT_ACTIVE')
    restore_ipv6(net)
    cross(net, 'ibv_rc_pingpong -n 100')


def addresses_change(net):
    """The addresses of the interface change during traffic. The GIDs of the device must follow, and the traffic must
    continue."""
    extra, gid = '10.79.7.7', '::ffff:10.79.7.7'
    def change():
        server, client = start_pair(net, 'ib_write_bw -s 65536 -D 3')
        try:
            net.a.ip(f'addr add {extra}/24 dev {net.a.interface}')
            time.sleep(0.5)
            check(gid in net.a.gids(), f'{extra} was added, but the GIDs are {net.a.gids()}')
            net.a.ip(f'addr del {extra}/24 dev {net.a.interface}')
            time.sleep(0.5)
            check(gid not in net.a.gids(), f'{extra} was taken away, but the GIDs are {net.a.gids()}')
            status = client.wait(60), server.wait(60)
        finally:
            client.kill()
            server.kill()
        check(status == (0, 0), f'traffic on another address: {status}\n{client.output()[-800:]}')
    events = watched(net.a, change)
    check(re.search(r'GID', events), f'no GID change event:\n{events}')


def smaller_mtu(net):
    """active_mtu must follow the MTU of the interface."""
    net.b.ip(f'link set {net.b.interface} mtu 1500')
    try:
        time.sleep(0.5)
        text = net.b.rdma_once('ibv_devinfo -d roci0')
        check(re.search(r'active_mtu:\s+1024', text), text)
    finally:
        net.b.ip(f'link set {net.b.interface} mtu {net.mtu}')


def happenings(kind):
    yield f'{kind}: link down for 0.4 s under traffic: it goes on, port events', short_flap
    yield f'{kind}: link down for good under traffic: retry exceeded, later anew', long_flap
    yield f'{kind}: addresses come and go under traffic', addresses_change
    yield f'{kind}: active_mtu follows the interface', smaller_mtu


# ---- XDP -------------------------------------------------------------------------------------------------------------

def kernel_goes_on(net):
    """While RDMA traffic uses a link, ping and TCP of the kernel must work on the same link."""
    server, client = start_pair(net, 'ib_write_bw -s 65536 -D 4')
    try:
        before = net.a.xdp()
        ping = net.b.sh(f'ping -c 40 -i 0.05 -W 2 {net.a.ipv4}')
        tcp = net.a.start_tcp_sink()
        sent = net.b.sh(f'python3 -c "{TCP_CLIENT}" {net.a.ipv4} {TCP_PORT}')
        tcp.wait(20)
        status = client.wait(60), server.wait(60)
    finally:
        client.kill()
        server.kill()
    after = net.a.xdp()
    check(' 0% packet loss' in ping, f'ping beside RDMA:\n{ping}')
    check(sent.strip() == tcp.output().strip() == str(TCP_BYTES), f'TCP beside RDMA: sent {sent}, received {tcp.output()}')
    check(status == (0, 0), f'RDMA beside ping and TCP: {status}')
    steered, passed = (after[key] - before[key] for key in ('steered', 'passed_other'))
    check(steered > 100 and passed > 100, f'XDP counters before {before}, after {after}')
    return f'{steered} frames steered, {passed} passed ({after["mode"]} mode)'


TCP_PORT, TCP_BYTES = 18555, 8 << 20
TCP_CLIENT = f'import socket,sys; s=socket.create_connection((sys.argv[1], int(sys.argv[2])), 10); s.sendall(bytes({TCP_BYTES})); print({TCP_BYTES})'


def program_on(host):
    return json.loads(host.ip(f'-j link show {host.interface}'))[0].get('xdp')


def crash_detaches(net):
    """After rocid is killed by SIGKILL, the kernel must remove the XDP program. The next rocid must start."""
    check(program_on(net.a), 'no XDP program while rocid runs')
    net.a.stop(9)
    time.sleep(0.5)
    check(not program_on(net.a), f'still there after kill -9: {program_on(net.a)}')
    net.a.start(net.a.device('af_xdp'))
    cross(net, 'ibv_rc_pingpong -n 100')


def refuses(host, config, *texts, under=()):
    """rocid must exit with 1 and print one error line. The line must contain the given texts."""
    try:
        check(not host.launch(config, under=under), f'it started:\n{host.log()}')
        check(host.process.returncode == 1, f'exit {host.process.returncode}:\n{host.log()}')
        errors = [line for line in host.log().splitlines() if not line.startswith('rocid: info:')]
        check(len(errors) == 1, f'{len(errors)} lines:\n{host.log()}')
        for text in texts:
            check(text in errors[0], f'"{text}" is not in: {errors[0]}')
    finally:
        host.stop()


def taken(net):
    """A second rocid on the same interface must report the conflict and must not disturb the first rocid."""
    other = type(net.a)(net.a.namespace, net.a.interface, 9, net.folder.name)
    refuses(other, other.device('af_xdp'), 'is taken', 'another rocid')
    cross(net, 'ibv_rc_pingpong -n 100')


def xdp_cases(quick):
    yield 'af_xdp: ping and TCP go on beside RDMA', kernel_goes_on
    yield 'af_xdp: kill -9 takes the XDP program off, a new rocid starts', crash_detaches
    yield 'af_xdp: the interface is taken', taken


# ---- groups ----------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Group:
    """A group of cases that use the same network. If `config` is given, they also use the same rocids."""
    name: str
    cases: Callable  # function: quick -> list of (name, body(net))
    config: Optional[Callable] = None  # function: host -> configuration of the host's rocid; None: each case starts its rocids
    prepare: Optional[Callable] = None  # function: net -> ...; called before the rocids start
    started: Optional[Callable] = None  # function: net -> ...; called after the rocids have started
    mtu: int = 4200
    queues: int = 1
    judged: bool = True  # the frames on the link are checked
    why_not: Optional[Callable] = None  # function that returns what this machine lacks for the group, or None


def plain(kind, engines=1):
    """Returns a function of a host. It returns a configuration with one device of this kind, on the interface of the
    host."""
    return lambda host: f'[engine]\ncount = {engines}\n' + host.device(kind)


def af_packet(quick):
    yield from matrix('af_packet', (256, 1024, 4096), quick)
    yield from happenings('af_packet')


def af_xdp(quick):
    yield from matrix('af_xdp', (256, 2048), quick)
    yield from xdp_cases(quick)
    yield from list(happenings('af_xdp'))[:3]


XDP_MTU = 2300

GROUPS = [
    Group('af_packet', af_packet, plain('af_packet')),
    Group('af_xdp', af_xdp, plain('af_xdp'), mtu=XDP_MTU),
]


def stop_cleanly(net):
    for host in (net.a, net.b):
        host.stop()
        check(host.process.returncode == 0, f'exit {host.process.returncode}:\n{host.log()[-1000:]}')
