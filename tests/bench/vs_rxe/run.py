#!/usr/bin/env python3
"""Compares Rocinante with the kernel's Soft-RoCE (rdma_rxe), as ratios, in one emulated guest with 2 CPUs.

    tests/bench/vs_rxe/run.py [--build DIR] [--rounds 3] [--seconds 3] [--parts 12345] [--kinds udp af_packet af_xdp] [--only REGEX] [--cpus N] [--list]

Needs root, qemu-system-x86_64, apt (for Debian's kernel package), perftest, rdma, iperf3, ibverbs-providers, busybox-static. Nothing is
installed. A figure is the median of --rounds runs; Soft-RoCE, Rocinante and TCP alternate. Before the first run, one or two runs that are
not reported find the time per iteration, from which the number of iterations in --seconds follows. The work folder stores this time for
later calls. A ratio above 1 is better for Rocinante: ours/rxe for bandwidth, rxe/ours for latency and CPU time. The processor is emulated,
so compare only within a run, on a machine that does nothing else.
"""
import argparse
import json
import pathlib
import re
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
sys.path[:0] = [str(HERE)] + [str(TOP / 'tests/interop' / f) for f in ('guest', 'nic')]
import guest
import image
import machine
from guest_side import TOPOLOGY, Bench, contents
from measure import Measurement, table


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', type=pathlib.Path, default=TOP / 'build')
    p.add_argument('--work', type=pathlib.Path, help='folder for the image and the logs of the guest; default: BUILD/vs_rxe')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--seconds', type=int, default=3)
    p.add_argument('--only', default='', help='measure only rows whose name matches this regular expression')
    p.add_argument('--parts', default='12345', help='parts to measure: 1 loopback, 2 veth, 3 loss, 4 beside TCP, 5 CPU')
    p.add_argument('--kinds', nargs='+', choices=['udp', 'af_packet', 'af_xdp'], default=['udp', 'af_packet', 'af_xdp'], help='ports to measure over veth')
    p.add_argument('--cpus', dest='smp', type=int, default=2, help='number of CPUs of the guest')
    p.add_argument('--calibrate', action='store_true', help='measure the times per iteration again instead of using the times that earlier runs have stored')
    p.add_argument('--list', action='store_true')
    options = p.parse_args()
    options.cpu = options.under = ''
    options.build = options.build.resolve()
    options.work = (options.work or options.build / 'vs_rxe').resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.json = options.work / 'vs_rxe.json'
    return options


def measure(g, options):
    m = Measurement(Bench(g, options), options)
    for number, part in (('1', m.loopback), ('2', m.veth), ('3', m.loss), ('4', m.share), ('5', m.cpu)):
        if number not in options.parts:
            continue
        try:
            part()
        except Exception as why:
            m.note(f'{part.__name__} ends early: {why}')
        if g is None:
            continue
        complaints = [l for l in g.said().splitlines() if re.search(r'BUG|Oops|WARNING|Call Trace|rcu:.*stall|hung', l)]
        if complaints:
            m.note(f"the guest's kernel, by {part.__name__}: {complaints[:4]}")
    return m


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the exit ends the guest
    if options.list:
        measure(None, options)
        return 0
    if why := guest.why_not():
        print('cannot:', why)
        return 1
    kernel, initramfs = image.build(options.work, contents(TOP, options.build, options.work, image, machine))
    with guest.Guest(kernel, initramfs, guest.Machine(memory=2048, cpus=options.smp), ('nice', '-n', '-10')) as g:
        print(f'guest up after {g.boot_seconds:.1f} s: {options.smp} CPUs, emulated; kernel ' + g.must('uname -r').strip(), flush=True)
        g.must(TOPOLOGY, 60)
        m = measure(g, options)
        options.json.write_text(json.dumps({'rows': m.rows, 'notes': m.notes}, indent=1))
        print(f'\nIn a guest with {options.smp} CPUs: 3 busy threads with Rocinante (engine, two programs), 2 and the kernel with Soft-RoCE.')
        table(m)
    missing = [n for n in m.notes if 'ends early' in n or re.match(r'(udp|af_\w+): ', n)] + [r['name'] for r in m.rows if None in r['median'].values()]
    if missing:
        print('not everything was measured: see the notes')
    return 1 if missing else 0


if __name__ == '__main__':
    sys.exit(main())
