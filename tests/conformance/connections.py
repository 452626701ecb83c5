"""Programs of Debian that connect by address (rdma_cm). Each case has one server and one or more clients over one
rocid."""
import dataclasses
import glob
import itertools
import os
import pathlib
import re
import shlex
import shutil
import tempfile
import time

import lab
from lab import Failure, Program, free_port
from pairs import ERROR_LINE, both_outputs, wait_both

ADDRESS = {'roci0': {'ipv4': '10.77.0.1', 'ipv6': 'fd77::1'}, 'roci1': {'ipv4': '10.77.0.2', 'ipv6': 'fd77::2'}}
GROUP = {'ipv4': '239.77.1.1', 'ipv6': 'ff0e::77'}
ANY = {'ipv4': '0.0.0.0', 'ipv6': '::'}
LISTEN_LIMIT = 30
RACES = 10


@dataclasses.dataclass(frozen=True)
class Row:
    """One case. In the commands, {to} stands for the server's address, {me} for the client's address, {port} for the
    port, {group} for the multicast group, and {any} for the wildcard address."""
    server: str
    client: str
    path: tuple = ('roci0', 'roci1')  # the device of the server and the device of the client
    family: str = 'ipv4'
    port: int = 0  # the port, if the program always uses the same port; 0: a free port
    shows: str = ''  # pattern that the client's output must match
    served: str = ''  # pattern that the server's output must match
    joins: bool = False  # the server does not listen; it is ready after it has joined its multicast group
    tcp: bool = False  # the server is ready when it listens on its TCP port, although it may not listen by rdma_cm yet
    by_cm: bool = True  # rdma_cm makes the connection, so the number of connection requests must increase
    settings: tuple = () # environment variables, NAME=value
    usual: str = ''  # harmless output that looks like an error
    clients: int = 1  # number of clients, one after the other
    races: str = ''  # pattern of the failure of a client that starts before its server is ready; run_row() then repeats the case
    stays: bool = False  # the server does not end by itself
    limit: float = 60
    in_quick: bool = True
    over_rsockets: bool = False  # the programs use TCP sockets, which librspreload replaces by r-sockets

    @property
    def program(self):
        return self.client.split()[0]

    @property
    def name(self):
        told = re.sub(r'( -\w| --\w+=)? ?\{\w+\}', '', self.client)
        more = (f' x {self.clients}' if self.clients > 1 else '') + (', server stays' if self.stays else '')
        over = ' over r-sockets' if self.over_rsockets else ''
        return f'rdma_cm: {told}{over}{more}, {self.path[0]} to {self.path[1]}, {self.family}'

    def commands(self, port):
        words = {'to': ADDRESS[self.path[0]][self.family], 'me': ADDRESS[self.path[1]][self.family], 'port': port,
                 'group': GROUP[self.family], 'any': ANY[self.family], 'device0': self.path[0], 'device1': self.path[1]}
        before = ['env', f'LD_PRELOAD={preload()}'] if self.over_rsockets else []
        return [[*before, *shlex.split(side.format(**words))] for side in (self.server, self.client)]


def preload():
    """Returns the path of librspreload, or None."""
    return next(iter(glob.glob('/usr/lib/*/rsocket/librspreload.so') + glob.glob('/usr/lib64/rsocket/librspreload.so')), None)


FAMILIES = ('ipv4', 'ipv6')
WAYS = (('roci0', 'roci1'), ('roci1', 'roci0'), ('roci0', 'roci0'))


def both(server, client, common='', **rest):
    """Returns one row per address family."""
    return [Row(f'{server} {common}', f'{client} {common}', family=family, **rest) for family in FAMILIES]


def rpings():
    listen, go = 'rping -s -a {to} -p {port}', 'rping -c -a {to} -I {me} -p {port}'
    for path, family in itertools.product(WAYS, FAMILIES):
        yield Row(f'{listen} -C 1000 -V', f'{go} -C 1000 -V', path, family)
    yield from both(listen, go, '-C 100 -V -S 65000')
    yield from both(listen, go, '-C 100 -V -q')
    yield Row('rping -s -a {any} -p {port} -C 10 -V', f'{go} -C 10 -V', family='ipv6')
    yield Row(f'{listen} -P -V', f'{go} -C 10 -V', clients=5, stays=True)
    yield Row(f'{listen} -P -V', f'{go} -C 10 -V', family='ipv6', clients=5, stays=True)


MATOSE = ('', '-c 10 -C 100 -S 4000', '-c 10 -P ib', '-c 10 -m', '-c 4 -t 32', '-c 4 -a 15')
UDADDY = ('', '-c 10 -C 100 -S 1000', '-p 0x0002')


def samples():
    """Yields the rows of rdma-core's examples except rping."""
    for args in MATOSE:
        yield from both('ucmatose -b {to}', 'ucmatose -s {to} -b {me}', args, port=7471, shows='return status 0', served='return status 0')
    for args in UDADDY:
        yield from both('udaddy -b {to}', 'udaddy -s {to} -b {me}', args, port=7174, shows='return status 0', served='return status 0')
    for path, family in itertools.product(WAYS[1:], FAMILIES):
        yield Row('ucmatose -b {to} -c 5', 'ucmatose -s {to} -b {me} -c 5', path, family, port=7471, shows='return status 0')
    yield from both('mckey -m {group} -b {to}', 'mckey -m {group} -b {me} -s', '', joins=True, shows='return status 0', served='return status 0')
    yield from both('mckey -m {group} -b {to}', 'mckey -m {group} -b {me} -s -o', '-c 4 -C 5', joins=True, shows='return status 0')
    yield from both('rdma_server -s {any} -p {port}', 'rdma_client -s {to} -p {port}', shows='rdma_client: end 0', served='rdma_server: end 0')
    for kind in 'rx':  # the server always listens on 0.0.0.0
        yield Row(f'rdma_xserver -p {{port}} -c {kind}', f'rdma_xclient -s {{to}} -p {{port}} -c {kind}', shows='end 0', served='end 0')
    yield from both('cmtime -b {to} -p {port}', 'cmtime -s {to} -p {port}', '-c 200', stays=True, shows=r'disconnect +:')


def streams():
    """Yields the rows of r-sockets. The r-sockets of the system's library run over our rdma_cm. `rstream -T a` is
    missing. The server of this mode disconnects right after the last data. If one rpoll() of the client reports both
    the last data and the disconnection, the client ends with 16 (POLLHUP). This always happens if a wake-up takes
    longer than the server's printf."""
    every = ('-I 50 -C 10 -S 5000 -T v', '-I 20 -C 10 -S 100000 -T n -T v')
    for program, sets in (('rstream', every), ('riostream', (*every, '-I 50 -C 10 -T a -T v'))):
        for args in sets:
            yield from both(f'{program} -p {{port}} -b {{to}}', f'{program} -p {{port}} -s {{to}}', args, shows=r'\d+\S* +\d+')
    # iperf3 and redis-server fail with librspreload of Debian 12 (docs/connections.md).
    yield Row('iperf -s -p {port}', 'iperf -c {to} -p {port} -n 32M', over_rsockets=True, stays=True, shows=r'32\.0 MBytes +[\d.]+ \w?bits/sec')


PERFTEST = ('ib_send_bw', 'ib_write_bw', 'ib_read_bw', 'ib_send_lat', 'ib_write_lat', 'ib_read_lat', 'ib_atomic_bw')


SEND_BW_OVER_CM = ('-q 8', '-c UD', '-b', '-e', '-r 64 --use-srq -q 4', '-a -n 20')


def perftests():
    """Yields the rows of perftest with -R. With -R this version of perftest accepts no IPv6 address. Its client
    connects a second time without waiting until the server listens again. If this connection is refused, the client
    ends, and run_row() repeats the run."""
    every = [(program, '') for program in PERFTEST] + [('ib_send_bw', args) for args in SEND_BW_OVER_CM]
    for program, args in every:
        told = f'{program} -R -F -n 200 {args}'.strip()
        yield Row(f'{told} -p {{port}} -d {{device0}}', f'{told} -p {{port}} -d {{device1}} {{to}}', races=r'REJECTED; error: 8|UNREACHABLE; error: 1',
                  shows=r'(?m)^\s+\d+\s+\d+\s+[\d.]+', in_quick='-a' not in args)
    # With -z the programs exchange parameters by rdma_cm, but create the measured QPs without rdma_cm.
    yield Row('ib_send_bw -z -F -n 200 -p {port} -d {device0}', 'ib_send_bw -z -F -n 200 -p {port} -d {device1} {to}', shows=r'(?m)^\s+\d+\s+\d+\s+[\d.]+')


FIO = 'fio --name=conformance --ioengine=rdma --port={port} --bs=64k --size=16m'
QPERF = ('rc_lat', 'rc_bw', 'rc_rdma_read_lat', 'rc_rdma_read_bw', 'rc_rdma_write_lat', 'rc_rdma_write_bw', 'rc_rdma_write_poll_lat')


def storage_and_figures():
    """Yields the rows of programs that do not belong to RDMA projects. The client of qperf uses the same address for
    TCP and for rdma_cm, so the address is 127.0.0.1. The server of qperf sends its port to the client before the
    server calls rdma_listen(), so the client may be refused. run_row() then repeats the whole row. Therefore each
    test of qperf is a separate row."""
    # In fio the writer is the client. It requests no RNR retries (rnr_retry_count 0). So with --verb=send the server
    # must post a receive for every SEND in advance. The server posts --iodepth receives before the first SEND.
    # Therefore the --iodepth of the server is the total number of SENDs in this case.
    for verb, ahead in (('write', 8), ('read', 8), ('send', 256)):
        yield Row(f'{FIO} --rw=read --iodepth={ahead}', f'{FIO} --hostname={{to}} --verb={verb} --rw=write --iodepth=8', shows=r'err= 0', limit=20)
    for test in QPERF:
        yield Row('qperf', f'qperf 127.0.0.1 -cm 1 -t 1 {test}', path=('roci0', 'roci0'), port=19765, tcp=True, stays=True,
                  shows=r'(bw|latency) += +[\d.]+', races='Event rejected')


def libraries():
    """Yields the rows of programs that use rdma_cm through a library. libfabric finds devices by the addresses of
    network interfaces. It also finds roci0 by 127.0.0.1. fi_pingpong sends the address of the peer by TCP. In UCX
    1.13, io_demo can connect by address, but ucx_perftest cannot."""
    for kind, most in (('msg', '1m'), ('rdm', '1m'), ('dgram', '4k')):
        told = f'fi_pingpong -p verbs -e {kind} -c -I 20'
        yield Row(f'{told} -B {{port}}', f'{told} -P {{port}} 127.0.0.1', path=('roci0', 'roci0'), tcp=True, by_cm=kind != 'dgram',
                  shows=rf'(?m)^{most} +20 +=20 ', races='server returned 125' if kind == 'rdm' else '')
    settings = ('UCX_TLS=rc_verbs,self', 'UCX_SOCKADDR_TLS_PRIORITY=rdmacm')
    demo = 'io_demo -p {port} -q -d 4096:65536 -o read,write'
    for path in WAYS:
        yield Row(demo, f'{demo} -i 200 {{to}}', path, settings=settings, stays=True, shows=r"Client exit with status 'OK'",
                  usual=r'Request canceled|Connection reset by remote peer')


def rows(quick):
    every = [*rpings(), *samples(), *streams(), *perftests(), *storage_and_figures(), *libraries()]
    return [row for row in every if row.in_quick] if quick else every


# --- running one ------------------------------------------------------------------------------------------------------

def wait_until(rocid, server, ready, what):
    end = time.monotonic() + LISTEN_LIMIT
    while not ready(rocid.status()):
        if server.process.poll() is not None:
            raise Failure(f'the server ended with {server.process.returncode} before its client came:\n{server.output()[-1500:]}')
        if time.monotonic() > end:
            raise Failure(f'{what} after {LISTEN_LIMIT} s:\n{server.output()[-1500:]}')
        time.sleep(0.05)


def wait_ready(rocid, row, server, port):
    if row.joins:
        return wait_until(rocid, server, lambda s: s['totals']['cm_groups'] > 0, 'the server did not join its group')
    if row.tcp:
        return server.wait_listening(port)
    return wait_served(rocid, server, port)


def wait_served(rocid, server, port):
    """Waits until a program listens on `port` by rdma_cm."""
    listens = lambda s: any(listener['port'] == port for listener in s['rdma_cm']['listeners'])
    wait_until(rocid, server, listens, f'the server does not listen on port {port}')


def judge(who, text, pattern, usual):
    for line in text.splitlines():
        if ERROR_LINE.search(line) and not (usual and re.search(usual, line)):
            raise Failure(f'{who} printed an error line: {line.strip()}')
    if pattern and not re.search(pattern, text):
        raise Failure(f'{who} did not print /{pattern}/:\n{text[-1500:]}')


def run_row(rocid, row):
    """Runs a row. If a failure matches `races`, runs the row again, at most RACES times in total. Raises any other
    Failure."""
    for _ in range(RACES):
        try:
            return run_once(rocid, row)
        except Failure as failure:
            if not row.races or not re.search(row.races, str(failure)):
                raise
    raise Failure(f'lost its race {RACES} times')


def run_once(rocid, row):
    port = row.port or free_port()
    commands, settings = row.commands(port), dict(setting.split('=', 1) for setting in row.settings)
    before, asked = rocid.totals(), requests(rocid)
    server = Program(rocid, commands[0], settings)
    client = None
    try:
        wait_ready(rocid, row, server, port)
        for _ in range(row.clients):
            client = Program(rocid, commands[1], settings)
            if row.stays:
                code = wait_client(client, server, row.limit)
            else:
                wait_both(server, client, time.monotonic() + row.limit)
                code = client.process.returncode
            if code != 0:
                raise Failure(f'client returned {code}:\n{both_outputs(server, client)}')
            judge('client', client.output(), row.shows, row.usual)
        if row.stays and server.process.poll() is not None:
            raise Failure(f'the server ended with {server.process.returncode}:\n{server.output()[-1500:]}')
    finally:
        for program in (client, server):
            if program and program.process.poll() is None:
                program.kill()
    rocid.check_alive()
    if not row.stays and server.process.returncode != 0:
        raise Failure(f'server returned {server.process.returncode}:\n{both_outputs(server, client)}')
    judge('server', server.output(), row.served, row.usual)
    if row.by_cm and not row.joins and requests(rocid) == asked:
        raise Failure('no connection was asked for by rdma_cm: the programs have found another way')
    nothing_stays(rocid, before)


def wait_client(client, server, limit):
    try:
        return client.wait(limit)
    except Failure as failure:
        raise Failure(f'{failure}\nserver:\n{server.output()[-1500:]}') from None


def requests(rocid):
    """Returns the number of connection requests that rdma_cm has sent since the start of rocid."""
    return sum(row['sent'] for row in rocid.status()['rdma_cm']['messages'] if row['message'] in ('REQ', 'SIDR_REQ'))


def nothing_stays(rocid, before, limit=10):
    """Waits until rocid has no connection of rdma_cm and no more objects than `before`. Raises Failure after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        now = {**rocid.totals(), 'connections': rocid.status()['rdma_cm']['connections']}
        left = {key: f'{before.get(key, 0)} -> {value}' for key, value in now.items() if value > before.get(key, 0)}
        if not left:
            return
        if time.monotonic() > end:
            raise Failure(f'rocid still holds after {limit} s: {left}')
        time.sleep(0.05)


def by_hand(rocid, row):
    sides = row.commands(row.port or free_port())
    return '  &  sleep 1;  '.join(' '.join([*row.settings, rocid.by_hand(side)]) for side in sides)


def missing(row):
    if row.over_rsockets and preload() is None:
        return 'librspreload is not installed (./dev setup)'
    return None if shutil.which(row.program) else f'{row.program} is not installed (./dev setup)'


# --- a file copy ------------------------------------------------------------------------------------------------------

def rcopy(rocid, family):
    port = free_port()
    with tempfile.TemporaryDirectory(prefix='roci-rcopy-') as folder:
        source, copy = pathlib.Path(folder, 'source'), pathlib.Path(folder, 'copy')
        source.write_bytes(os.urandom(8 << 20))
        server = Program(rocid, ['rcopy', '-p', str(port)])
        try:
            wait_served(rocid, server, port)
            client = Program(rocid, ['rcopy', str(source), f'{ADDRESS["roci0"][family]}:{copy}', '-p', str(port)])
            code = client.wait(60)
        finally:
            server.kill()
        if code != 0:
            raise Failure(f'rcopy returned {code}:\n{client.output()[-1500:]}')
        if copy.read_bytes() != source.read_bytes():
            raise Failure('the copy differs')


def fi_info(rocid):
    text = lab.run_once(rocid, ['fi_info', '-p', 'verbs'])
    for kind in ('FI_EP_MSG', 'FI_EP_DGRAM', 'FI_EP_RDM'):
        if kind not in text:
            raise Failure(f'fi_info does not list {kind}:\n{text}')


CASES = {'rdma_cm: rcopy of 8 MiB, ipv4': lambda rocid: rcopy(rocid, 'ipv4'), 'rdma_cm: fi_info -p verbs': fi_info}
