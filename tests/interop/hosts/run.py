#!/usr/bin/env python3
"""Tests two hosts on one machine, with one rocid each, over the kinds of ports that need no hardware.

    tests/interop/hosts/run.py [--quick | --full] [--only TEXT] [--list]

Prints PASS or FAIL per case. Ends with `N passed, N failed, N skipped`. Needs network namespaces and veth (root).
"""
import argparse
import sys
import time
import traceback

import bad_input
import by_address
import cases
import checksums
import ports
import ratios
import rights
import udp
import udp_bad
import xdp_programs
from hosts import Failure, Network, why_not


class Report:
    def __init__(self, only):
        self.only = only
        self.passed = self.failed = self.skipped = 0

    def wants(self, name):
        return self.only in name

    def case(self, name, body, always=False):
        if not always and not self.wants(name):
            return
        start = time.monotonic()
        try:
            said = body()
        except Failure as failure:
            why = str(failure)
        except Exception:  # an error in the test code also counts as a failure
            why = traceback.format_exc()
        else:
            self.passed += 1
            print(f'PASS {time.monotonic() - start:6.1f} s  {name}' + (f': {said}' if said else ''), flush=True)
            return
        self.failed += 1
        print(f'FAIL {time.monotonic() - start:6.1f} s  {name}\n    ' + why.strip().replace('\n', '\n    '), flush=True)

    def skip(self, chosen, why):
        self.skipped += len(chosen)
        for name, _ in chosen:
            print(f'SKIP           {name}: {why}', flush=True)

    def end(self):
        print(f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        return 1 if self.failed or not self.passed else 0


def judged(net, name, body):
    """Runs a case and checks the frames on the link."""
    try:
        said = body(net)
    except Exception:
        net.wire.drop()
        raise
    net.wire.end_case(name)
    return said


def run_group(report, group, quick):
    """Runs the wanted cases of a group on one network. If the group has a configuration, all cases use the same pair
    of rocids."""
    chosen = [(name, body) for name, body in group.cases(quick) if report.wants(name)]
    if not chosen:
        return
    if group.why_not and (why := group.why_not()):
        report.skip(chosen, why)
        return
    try:
        with Network(group.mtu, group.queues, group.judged) as net:
            if group.prepare:
                group.prepare(net)
            if group.config:
                for host in (net.a, net.b):
                    host.start(group.config(host))
            if group.started:
                group.started(net)
            for name, body in chosen:
                report.case(name, lambda n=name, b=body: judged(net, n, b))
            if net.wire.frames:
                report.case(f'{group.name}: tshark finds nothing malformed', net.wire.judge, always=True)
            if group.config:
                report.case(f'{group.name}: both stop cleanly', lambda: cases.stop_cleanly(net))
    except Failure as failure:
        why = str(failure)
        report.case(f'{group.name}: starts', lambda: cases.fail(why))


GROUPS = [*cases.GROUPS, *ports.GROUPS, *ratios.GROUPS, *rights.GROUPS, *bad_input.GROUPS, *by_address.GROUPS, *checksums.GROUPS, *udp.GROUPS, *udp_bad.GROUPS, *xdp_programs.GROUPS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='run fewer cases, as CI does')
    parser.add_argument('--full', action='store_true', help='run all cases (default)')
    parser.add_argument('--only', default='', metavar='TEXT', help='run only cases whose name contains TEXT')
    parser.add_argument('--list', action='store_true', help='print the names of the cases and stop')
    options = parser.parse_args()
    if options.list:
        print('\n'.join(name for group in GROUPS for name, _ in group.cases(options.quick)))
        return 0
    if why := why_not():
        print(f'SKIP  two hosts: {why}\n0 passed, 0 failed, 1 skipped')
        return 0
    report = Report(options.only)
    for group in GROUPS:
        run_group(report, group, options.quick)
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
