"""Measures the figures of vs_rxe. A figure is the median of several rounds. Each round measures all ends (rows.py)
one after the other."""
import json
import re
import statistics
import time

from guest_side import Failed
from rows import End, EndWith, Row


def line(result):
    unit = {'bw': 'MiB/s', 'lat': 'µs', 'cpu': 's/GiB'}[result['kind']]

    def one(k, v):
        if v is None:
            return f'{k} FAILED'
        spread = result['runs'][k]
        return f'{k} {v:.4g} ({min(spread):.4g}–{max(spread):.4g})'
    ratios = ', '.join(f'{v:.2f}' if v else 'none' for v in result['ratio'].values())
    if result['kind'] == 'lat':
        ratios += '; by average ' + ', '.join(f'{v:.2f}' if v else 'none' for v in result['by_average'].values())
    return f"{result['name']:<62} {ratios:>12}   {'; '.join(one(k, v) for k, v in result['median'].items())} {unit}" + (f"  failures {result['failures']}" if result.get('failures') else '')


def table(measurement):
    print('\nMore than 1 is better for Rocinante.\n')
    print(f"| {'row':<75} | ratio | Rocinante | rxe | TCP |\n| --- | ---: | ---: | ---: | ---: |")
    worst = None
    for r in measurement.rows:
        rxe = next((v for k, v in r['median'].items() if k.startswith('rxe')), None)
        tcp = r['median'].get('tcp')
        for k, ratio in r['ratio'].items():
            ours, counted = r['median'][k], 'fault' not in k
            name = r['name'] + (f' ({k})' if len(r['ratio']) > 1 or 'veth' in r['name'] else '')
            kept = r.get('kept', {})
            if r['kind'] == 'lat' and k in r.get('by_average', {}):
                name += f"; by average {r['by_average'][k]:.2f}"
            tail = ''.join(f'; kept: {w} {kept[key]:.2f}' for w, key in (('ours', k), ('rxe', 'rxe')) if kept.get(key))
            print(f"| {name + tail:<75} | {f'{ratio:.2f}' if ratio else 'failed'} | {f'{ours:.4g}' if ours else 'failed'} | {f'{rxe:.4g}' if rxe else 'failed'} | {f'{tcp:.4g}' if tcp else ''} |")
            if counted and rxe and (worst is None or (ratio or 0) < worst[0]):
                worst = (ratio or 0, name)
    for note in measurement.notes:
        print('-', note.replace('\n', ' ')[:300])
    print(f'worst ratio: {worst[0]:.2f} ({worst[1]})' if worst else 'worst ratio: none (nothing measured)')


class Measurement:
    def __init__(self, bench, options):
        self.bench, self.options, self.rows, self.notes = bench, options, [], []
        self.wanted = re.compile(options.only)

    def note(self, text):
        print('NOTE', text, flush=True)
        self.notes.append(text)

    def row(self, section, row, ends, kind=None):
        """Measures the ends in turn. Returns {end: median}. Returns None if --only excludes the row or if --list is
        set."""
        name = f'{section}: {row.name}' if row else f'{section}'
        if not self.wanted.search(name):
            return None
        if self.options.list:
            print(name)
            return None
        row.section = section
        start, runs, failures = time.monotonic(), {e.name: [] for e in ends}, {e.name: 0 for e in ends}
        for _ in range(self.options.rounds):
            for end in ends:
                if failures[end.name] >= 2 and not runs[end.name]:
                    continue
                try:
                    runs[end.name].append(self.bench.figure(end, row))
                except Failed as why:
                    failures[end.name] += 1
                    self.note(f'{name}: {str(why)[:600]}')
        kind = kind or ('lat' if 'lat' in row.program else 'bw')
        result = {'name': name, 'kind': kind, 'seconds': time.monotonic() - start, 'failures': {k: v for k, v in failures.items() if v},
                  'runs': {k: [f for f, _ in v] for k, v in runs.items()}, 'costs': {k: [c for _, c in v] for k, v in runs.items()},
                  'median': {k: statistics.median([f for f, _ in v]) if v else None for k, v in runs.items()}}
        self.add(result)
        return result['median']

    def add(self, result):
        m = result['median']
        rxe = next((v for k, v in m.items() if k.startswith('rxe')), None)
        less = result['kind'] != 'bw'
        result['ratio'] = {k: (None if not v or not rxe else rxe / v if less else v / rxe) for k, v in m.items() if k.startswith('roci')}
        if result['kind'] == 'lat':
            a = {k: statistics.median(c['avg'] for c in v) for k, v in result['costs'].items() if v}
            of_rxe = next((v for k, v in a.items() if k.startswith('rxe')), None)
            result['average'], result['by_average'] = a, {k: of_rxe / v for k, v in a.items() if of_rxe and k.startswith('roci')}
        self.rows.append(result)
        print(line(result), flush=True)
        self.options.json.write_text(json.dumps({'rows': self.rows, 'notes': self.notes}, indent=1))

    # ---- 1

    def loopback(self):
        rxe = End('rxe', ('rxel', 'rxel'), ('10.63.0.1', '10.63.0.1'))
        run = 'roci run --socket /run/lb.sock --'
        ours = End('roci', ('roci0', 'roci1'), ('10.77.0.1', '10.77.0.2'), run, run, rocids=('lb',))
        if not self.options.list:
            self.bench.rocid('lb', '--loopback')
            rxe.find_gids(self.bench)
            ours.find_gids(self.bench)
        m = '-m 4096'
        for size, what in ((64, '64 B'), (4096, '4 KiB'), (65536, '64 KiB'), (1048576, '1 MiB')):
            self.row('1 loopback', Row(f'ib_write_bw {what}', 'ib_write_bw', m, size), (rxe, ours))
        self.row('1 loopback', Row('ib_write_bw 64 KiB, 16 QPs', 'ib_write_bw', m, 65536, 16), (rxe, ours))
        self.row('1 loopback', Row('ib_send_bw 64 B', 'ib_send_bw', m), (rxe, ours))
        self.row('1 loopback', Row('ib_read_bw 64 KiB', 'ib_read_bw', m, 65536), (rxe, ours))
        self.row('1 loopback', Row('ib_write_lat 64 B', 'ib_write_lat', m), (rxe, ours))
        self.row('1 loopback', Row('ib_send_lat 64 B', 'ib_send_lat', m), (rxe, ours))
        self.row('1 loopback', Row('ib_send_lat 64 B -e', 'ib_send_lat', f'{m} -e'), (rxe, ours))
        self.row('1 loopback', Row('ib_send_bw 64 KiB -e', 'ib_send_bw', f'{m} -e', 65536), (rxe, ours))
        self.row('1 loopback', Row('ib_write_bw 64 KiB, rxe at its default MTU (1024), ours at 4096', 'ib_write_bw', m, 65536), (EndWith(rxe, '-m 1024'), ours))

    # ---- 2

    def set_mtu(self, mtu, mtu_xdp):
        self.bench.guest.must(f'for l in va vb; do ip link set $l mtu {mtu}; done; for n in a b; do ip -n $n link set w$n mtu {mtu}; ip -n $n link set x$n mtu {mtu_xdp}; done; '
                              f'for n in c d; do ip -n $n link set u$n mtu {mtu}; done')

    def veth_ends(self, xdp=True):
        ends = {'rxe': End('rxe', ('rxea', 'rxeb'), ('10.60.0.1', '10.60.0.2'))}
        for kind, letter, net, spaces, perftest_net in (('udp', 'u', 65, 'cd', 66), ('af_packet', 'w', 61, 'ab', 62), ('af_xdp', 'x', 64, 'ab', 62)):
            if kind not in self.options.kinds or kind == 'af_xdp' and not xdp:
                continue
            if not self.options.list:
                try:
                    for n in spaces:
                        self.bench.rocid(f'{kind}-{n}', '', n, f'[[device]]\nname = "roci0"\nport = "{kind}"\ninterface = "{letter}{n}"')
                except Failed as why:
                    self.note(f'{kind}: {why}')
                    continue
            before = [f'/usr/bin/ip netns exec {n} roci run --socket /run/{kind}-{n}.sock --' for n in spaces]
            ends[f'roci {kind}'] = End(f'roci {kind}', ('roci0', 'roci0'), (f'10.{net}.0.1', f'10.{net}.0.2'), before[1], before[0], f'10.{perftest_net}.0.2',
                                       tuple(f'{kind}-{n}' for n in spaces))
        if not self.options.list:
            for end in ends.values():
                end.find_gids(self.bench)
        ends['tcp'] = End('tcp', None, None, '/usr/bin/ip netns exec b', '/usr/bin/ip netns exec a', '10.61.0.2')
        return ends

    def veth(self):
        for mtu, mtu_xdp, paths in ((4200, 3400, (4096, 2048)), (1500, 1500, (1024,))):
            if not self.options.list:
                self.set_mtu(mtu, mtu_xdp)
            ends = self.veth_ends()
            for path in paths:
                bw = [ends[k] for k in ('rxe', 'roci udp', 'roci af_packet', 'roci af_xdp') if k in ends and (k != 'roci af_xdp' or path <= 2048)]
                section = f'2 veth {mtu}, path MTU {path}'
                self.row(section, Row('ib_write_bw 64 KiB', 'ib_write_bw', f'-m {path}', 65536), bw + [ends['tcp']] * (path != 2048))
                if path != 2048:
                    self.row(section, Row('ib_send_lat 64 B', 'ib_send_lat', f'-m {path}'), bw)
                    self.row(section, Row('ib_send_lat 64 B -e', 'ib_send_lat', f'-m {path} -e'), bw)

    # ---- 3

    def loss(self):
        if not self.options.list:
            self.set_mtu(4200, 3400)
        ends, base = self.veth_ends(xdp=False), {}
        links = (('', 'va'), ('', 'vb'), ('-n a', 'wa'), ('-n b', 'wb'), ('-n c', 'uc'), ('-n d', 'ud'))
        run = 'roci run --socket /run/lossy.sock --'
        loop = End('roci loopback, fault', ('roci0', 'roci1'), ('10.77.0.1', '10.77.0.2'), run, run, rocids=('lossy',))
        for percent in (0, 0.1, 1, 3):
            if not self.options.list:
                for n, link in links:
                    self.bench.guest.must(f'tc {n} qdisc replace dev {link} root netem limit 10000 loss {percent}%')
                self.bench.rocid('lossy', f'--loopback --set fault.drop={percent / 100 or 1e-12}')
                loop.find_gids(self.bench)
            row = Row('ib_write_bw 64 KiB', 'ib_write_bw', '-m 4096', 65536, first=40)
            got = self.row(f'3 loss {percent} %', row, [*(ends[k] for k in ('rxe', 'roci udp', 'roci af_packet') if k in ends), loop, ends['tcp']])
            if got:
                base = base or got
                self.rows[-1]['kept'] = {k: (v / base[k] if v and base.get(k) else None) for k, v in got.items()}
                print('      of its own without loss: ' + ', '.join(f'{k} {v:.3f}' for k, v in self.rows[-1]['kept'].items() if v), flush=True)
        if not self.options.list:
            self.bench.guest.must('; '.join(f'tc {n} qdisc del dev {link} root' for n, link in links))
            self.bench.end_rocid('lossy')

    # ---- 4: beside TCP

    def share(self):
        """Sends WRITEs over a udp port beside one TCP stream with CUBIC, through a bottleneck with a queue of a given
        length. Notes both rates and the smaller one's part of a fair share."""
        rate, delay = 100, 10  # Mb/s, ms
        for bdps in (0.5, 1, 2):
            name = f'4 share: {rate} Mb/s, {delay} ms, queue {bdps} x bandwidth x delay'
            if not self.wanted.search(name):
                continue
            if self.options.list:
                print(name)
                continue
            self.set_mtu(1500, 1500)
            end = self.veth_ends(xdp=False)['roci udp']
            queue = int(rate * 125 * delay * bdps)
            self.bench.guest.must(f'tc -n c qdisc replace dev uc root tbf rate {rate}mbit burst 16k limit {queue}; tc -n d qdisc replace dev ud root netem limit 10000 delay {delay}ms')
            both = [self.beside_tcp(end) for _ in range(self.options.rounds)]
            self.bench.guest.must('tc -n c qdisc del dev uc root; tc -n d qdisc del dev ud root')
            ours, tcp = (statistics.median(rates) for rates in zip(*both))
            least = statistics.median(2 * min(pair) / sum(pair) for pair in both)
            self.note(f'{name}: RDMA {ours:.1f}, TCP {tcp:.1f} Mb/s (medians of {len(both)}), the smaller one has {least:.2f} of a fair share')

    def beside_tcp(self, end, seconds=20):
        """Returns the rates of RDMA and TCP in Mb/s while both send."""
        server, client = '/usr/bin/ip netns exec d', '/usr/bin/ip netns exec c'
        listening = self.bench.guest.start(f'{server} iperf3 -s -1', seconds + 30)
        stream = self.bench.guest.start(f'sleep 1; {client} iperf3 -c 10.65.0.2 -t {seconds} -i 1 -f m -C cubic', seconds + 30)
        self.bench.port += 1
        words = [f'ib_write_bw -F -d {dev} -x {gid} -p {self.bench.port} -s 65536 -m 1024 -D {seconds - 6} --report_gbits' for dev, gid in zip(end.devices, end.gids)]
        ours, _ = self.bench.pair(end, words[1], words[0], end.address, self.bench.port, seconds + 30)
        figure = float([row.split() for row in ours.splitlines() if re.match(r'\s*65536\s+\d+\s', row)][-1][3])
        output = stream.wait()[1]
        listening.wait()
        rows = [float(r) for r in re.findall(r'sec +[\d.]+ \S+ +([\d.]+) Mbits/sec', output)]
        return 1000 * figure, statistics.mean(rows[4:seconds - 8])

    # ---- 5

    def cpu(self):
        """Measures the CPU time in seconds per GiB. It is the difference between a long run and a short run, which
        does not include the start of the programs."""
        run = 'roci run --socket /run/lb.sock --'
        groups = (('5 CPU loopback', (End('rxe', ('rxel', 'rxel'), ('10.63.0.1', '10.63.0.1')),
                                      End('roci', ('roci0', 'roci1'), ('10.77.0.1', '10.77.0.2'), run, run, rocids=('lb',)))),
                  ('5 CPU veth', None))
        for section, ends in groups:
            if not self.wanted.search(section):
                continue
            if self.options.list:
                print(section)
                continue
            if ends is None:
                self.set_mtu(4200, 3400)
                ends = [e for k, e in self.veth_ends().items() if k != 'tcp' and k != 'roci af_xdp']
            else:
                self.bench.rocid('lb', '--loopback')
                for end in ends:
                    end.find_gids(self.bench)
            for events in ('', ' -e'):
                row = Row('ib_send_bw 64 KiB' + events, 'ib_send_bw', '-m 4096' + events, 65536)
                row.section = section
                host, inside = {e.name: [] for e in ends}, {e.name: [] for e in ends}
                for _ in range(self.options.rounds):
                    for end in ends:
                        try:
                            _, long = self.bench.figure(end, row)
                            n = row.n
                            _, short = self.bench.perftest(end, row.program, row.options, 8)
                        except Failed as why:
                            self.note(f'{section}: {str(why)[:500]}')
                            continue
                        size = (n - 8) * row.size / 2**30
                        host[end.name].append((long['host_cpu'] - short['host_cpu']) / size)
                        inside[end.name].append((long['guest_cpu'] - short['guest_cpu']) / size)
                for what, of in (("QEMU's CPU s/GiB", host), ("guest's /proc/stat s/GiB", inside)):
                    self.add({'name': f'{section}: {row.name}, {what}', 'kind': 'cpu', 'runs': of, 'median': {k: statistics.median(v) if v else None for k, v in of.items()}})
        self.idle()

    def idle(self):
        if not self.wanted.search('5 CPU idle'):
            return
        if self.options.list:
            print('5 CPU idle')
            return
        bench = self.bench
        for name in list(bench.rocids):
            bench.end_rocid(name)

        def sample(what, seconds=10):
            time.sleep(1)
            cpu, start = bench.host_cpu(), time.monotonic()
            output = bench.guest.run(f'head -n 1 /proc/stat; sleep {seconds}; head -n 1 /proc/stat', 60)[1]
            cpu, wall = bench.host_cpu() - cpu, time.monotonic() - start
            busy = [sum(int(w) for i, w in enumerate(l.split()[1:8]) if i not in (3, 4)) / 100 for l in output.splitlines() if l.startswith('cpu ')]
            return 100 * cpu / wall, 100 * (busy[1] - busy[0]) / seconds
        found = {'rxe, 3 links up': sample('rxe')}
        bench.rocid('lb', '--loopback')
        found['rocid --loopback'] = sample('lb')
        waiting = bench.guest.start('setsid roci run --socket /run/lb.sock -- ibv_rc_pingpong -e -d roci0 -g 1 & p=$!; sleep 20; kill -TERM -$p', 40)
        time.sleep(3)
        found['rocid --loopback, a program with a QP'] = sample('lbqp')
        waiting.wait()
        bench.end_rocid('lb')
        self.veth_ends(xdp=False)
        found['two rocids, af_packet'] = sample('afp')
        for name in list(bench.rocids):
            bench.end_rocid(name)
        found['rxe, again'] = sample('rxe')
        for what, (host, inside) in found.items():
            self.note(f'idle CPU, {what}: QEMU {host:.1f} % of a CPU, guest /proc/stat {inside:.1f} %')
