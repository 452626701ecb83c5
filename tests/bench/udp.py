#!/usr/bin/env python3
"""Compares port = "udp" with the kernel's own sockets, between two network namespaces on one veth.

    tests/bench/udp.py [--build DIR] [--rounds N] [--seconds N] [--mtu N ...] [--kinds udp af_packet af_xdp] [--latency]
                       [--engine 'KEY = VALUE' ...]

Each round measures in turn, in MB/s: TCP (iperf3, one stream), bare UDP sockets with UDP_SEGMENT and UDP_GRO (udp_floor), the same
sockets with an ICRC and a copy of the payload at both ends, which an engine needs too, then RDMA WRITE of 64 KiB (ib_write_bw) over
each kind of port. With --latency, each round measures half a round trip of 64 B in us: two UDP sockets that block in recv, then
ib_send_lat and ib_write_lat over each kind of port. Prints the median of each figure and its ratio to the first figure. Needs root.
"""
import argparse
import itertools
import os
import pathlib
import re
import statistics
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PORT = itertools.count(19300)
PAYLOAD = {1500: 1024, 4400: 4096, 9000: 4096}
BTH_AND_ICRC = 16
XDP_MOST = 3400


def floor(net, ours, theirs, answer):
    """Runs udp_floor at both ends. Returns the last figure that the end `answer` ("server" or "client") has
    printed."""
    port = next(PORT)
    tool = str(hosts.BUILD / 'tests/bench/udp_floor')
    server = hosts.Program([*net.a.inside, tool, ours[0], str(port), *map(str, ours[1:])])
    client = None
    try:
        net.wait(lambda: 'ready' in server.output(), 'udp_floor does not start')
        client = hosts.Program([*net.b.inside, tool, theirs[0], net.a.ipv4, str(port), *map(str, theirs[1:])])
        if client.wait(60) != 0:
            raise hosts.Failure(f'udp_floor: {client.output()}')
        if answer == 'server':
            server.wait(30)
        said = (server if answer == 'server' else client).output()
        return float(re.findall(r'([\d.]+) (?:MB/s|us)', said)[-1])
    finally:
        server.kill()
        if client is not None:
            client.kill()


def cpu_seconds(host):
    """Returns the CPU time in seconds of all threads of the host's rocid."""
    return sum(int(path.read_text().split()[0]) for path in pathlib.Path(f'/proc/{host.process.pid}/task').glob('*/schedstat')) / 1e9


def frames_sent(host):
    return sum(e['counters'].get('tx_frames', 0) for e in host.status()['host']['engines'])


class Columns:
    """The measurements of a round. Each is a pair of a name and a function measure(net)."""

    def __init__(self, options, mtu):
        self.options, self.mtu = options, mtu
        self.cpu = {}  # kind: list of (sender's, receiver's CPU time in microseconds per 64 KiB)

    def write(self, kind):
        """Returns a function that measures MB/s. This function also appends the CPU time of rocid to `cpu`. Other
        load changes the CPU time less than the rate."""
        def body(net):
            before = cpu_seconds(net.b), cpu_seconds(net.a), frames_sent(net.b)
            rate = ratios.perftest(net, f'ib_write_bw -s 65536 -D {self.options.seconds}')[3] * 1.048576
            sender, receiver, frames = cpu_seconds(net.b) - before[0], cpu_seconds(net.a) - before[1], frames_sent(net.b) - before[2]
            messages = frames * PAYLOAD.get(self.mtu, 1024) / 65536
            self.cpu.setdefault(kind, []).append((sender * 1e6 / messages, receiver * 1e6 / messages))
            return rate
        return body

    def over(self, kind, measure):
        def body(net):
            for host in (net.a, net.b):
                host.start('\n'.join(['[engine]', *self.options.engine]) + '\n' + host.device(kind))
            try:
                return measure(net)
            finally:
                for host in (net.a, net.b):
                    host.stop()
        return body

    def kinds(self):
        return [k for k in self.options.kinds if k != 'af_xdp' or self.mtu <= XDP_MOST]

    def bandwidth(self):
        seconds = self.options.seconds
        segment = PAYLOAD.get(self.mtu, 1024) + BTH_AND_ICRC
        yield 'TCP, one stream', lambda net: ratios.iperf3(net, seconds)
        yield f'UDP sockets, segments of {segment}', lambda net: floor(net, ('receive',), ('send', segment, seconds), 'server')
        payload = segment - BTH_AND_ICRC
        yield 'the same with ICRC and a copy at both ends', lambda net: floor(net, ('take', payload), ('give', payload, seconds), 'server')
        for kind in self.kinds():
            yield f'{kind}: WRITE 64 KiB', self.over(kind, self.write(kind))

    def latency(self):
        count = 5000 * self.options.seconds
        yield 'UDP ping-pong, 64 B', lambda net: floor(net, ('pong',), ('ping', 64, count), 'client')
        for kind in self.kinds():
            for program in ('ib_send_lat', 'ib_write_lat'):
                yield f'{kind}: {program} -s 64', self.over(kind, lambda net, p=program: ratios.perftest(net, f'{p} -s 64 -n {count}')[4])


def table(options, mtu, columns, unit):
    columns = list(columns)
    figures = {name: [] for name, _ in columns}
    with hosts.Network(mtu, judged=False) as net:
        for _ in range(options.rounds):
            for name, measure in columns:
                figures[name].append(measure(net))
    print(f'\n| MTU {mtu}, median of {options.rounds} | {unit} | all rounds | ratio |\n| --- | ---: | --- | ---: |')
    base = statistics.median(figures[columns[0][0]])
    for name, values in figures.items():
        middle = statistics.median(values)
        print(f'| {name} | {middle:.{0 if unit == "MB/s" else 1}f} | {" ".join(f"{v:.0f}" for v in values)} | {middle / base:.2f} |', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=TOP / 'build')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=int, default=2, help='duration of each measurement in seconds')
    parser.add_argument('--mtu', type=int, nargs='+', default=[1500, 9000])
    parser.add_argument('--kinds', nargs='+', choices=['udp', 'af_packet', 'af_xdp'], default=['udp'])
    parser.add_argument('--latency', action='store_true')
    parser.add_argument('--engine', nargs='+', default=[], metavar='KEY = VALUE', help='keys of the section [engine] of the configuration, with their values')
    options = parser.parse_args()
    global hosts, ratios
    os.environ['ROCI_BUILD'] = str(options.build.resolve())
    sys.path.append(str(TOP / 'tests/interop/hosts'))
    import hosts
    import ratios
    if why := hosts.why_not():
        sys.exit(why)
    print(f'{len(os.sched_getaffinity(0))} CPUs; two programs and two engines (four busy threads) over RDMA, two threads over sockets; no loss')
    for mtu in options.mtu:
        columns = Columns(options, mtu)
        table(options, mtu, columns.latency() if options.latency else columns.bandwidth(), 'us' if options.latency else 'MB/s')
        for kind, both in columns.cpu.items():
            sender, receiver = (statistics.median(side) for side in zip(*both))
            print(f'{kind}: CPU time of rocid per 64 KiB: {sender:.1f} us at the sender, {receiver:.1f} us at the receiver')


if __name__ == '__main__':
    main()
