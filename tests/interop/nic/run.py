#!/usr/bin/env python3
"""Tests rocid in an emulated machine with NICs, an IOMMU and systemd: on a NIC of its own (port = "pci"), as a service, and on a VLAN interface.

    tests/interop/nic/run.py [--quick | --full] [--only TEXT] [--list] [--verbose]

Prints PASS or FAIL per row. Ends with `N passed, N failed, N skipped`. Needs QEMU, taps and a network namespace (root).
"""
import argparse
import contextlib
import signal
import sys
import time
import traceback

import bench
import errors
import machine
import nics
import service
import vlan

guest, image = bench.guest, bench.image
QEMU_FAULT = 'e1000e_intrmgr_on_throttling_timer'  # QEMU 7.2 aborts by a wrong assertion if MSI-X is enabled when this timer fires
DEADLINE = 10 * 60  # seconds for all rows; later rows are skipped


def groups(wire):
    """Yields tuples (group, rows). A row is a tuple (name, body, whether --quick runs the row)."""
    yield 'errors', errors.Rows(wire).rows()
    yield 'systemd', service.Rows(wire).rows()
    yield 'kernel VLAN', vlan.Rows(wire).rows()
    for nic in machine.NICS:
        yield nic.name, nics.Rows(wire, nic).rows()


class Report:
    def __init__(self, options):
        self.options, self.end = options, time.monotonic() + DEADLINE
        self.passed = self.failed = self.skipped = 0

    def wants(self, name, quick):
        return (self.options.full or self.options.only or quick) and self.options.only in name

    def skip(self, name, why):
        self.skipped += 1
        print(f'SKIP           {name}: {why}', flush=True)

    def row(self, name, body, wire):
        start = time.monotonic()
        if start > self.end:
            return self.skip(name, 'no time left')
        try:
            said = body()
        except (bench.Failure, guest.GuestError) as failure:
            why = str(failure)
            if QEMU_FAULT in wire.guest.died_of():
                return self.skip(name, f"this QEMU's e1000e is at fault: {QEMU_FAULT}")
        except Exception:  # an error in the test code also counts as a failure
            why = traceback.format_exc()
        else:
            self.passed += 1
            print(f'PASS {time.monotonic() - start:6.1f} s  {name}' + (f': {said}' if said else ''), flush=True)
            return None
        self.failed += 1
        print(f'FAIL {time.monotonic() - start:6.1f} s  {name}\n    ' + why.strip().replace('\n', '\n    '), flush=True)
        if self.options.verbose:
            print('    the guest says:\n' + wire.guest.said()[-2000:])
        return None

    def summary(self):
        print(f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        return 1 if self.failed else 0


def boot(stack):
    """Returns a running guest. If the machine is busy, an emulated guest may not boot in time. In this case reports
    the failure and starts a second guest."""
    try:
        return stack.enter_context(bench.Bench())
    except guest.GuestError as error:
        print(f'AGAIN          the guest did not come up: {error}', flush=True)
        return stack.enter_context(bench.Bench())


def run(report):
    try:
        with contextlib.ExitStack() as stack:
            wire = boot(stack)
            print(f'guest up after {wire.guest.boot_seconds:.1f} s', flush=True)
            for group, rows in groups(wire):
                rows = [(f'{group}: {name}', body, quick) for name, body, quick in rows]
                if not any(report.wants(name, quick) for name, _, quick in rows):
                    continue
                for number, (name, body, quick) in enumerate(rows):
                    if number == 0 or report.wants(name, quick):  # the first row starts programs that the other rows need
                        report.row(name, body, wire)
    except image.CannotBuild as reason:
        report.skip('all', reason)
    except (guest.GuestError, bench.Failure) as error:
        report.failed += 1
        print(f'FAIL the guest does not boot, or rocid does not start: {error}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='run only the rows that CI runs (default)')
    parser.add_argument('--full', action='store_true', help='run all rows')
    parser.add_argument('--only', default='', metavar='TEXT', help='run only rows whose name contains TEXT, and the first row of each group that has such a row')
    parser.add_argument('--list', action='store_true', help='print the names of the rows and stop')
    parser.add_argument('--verbose', action='store_true', help='if a row fails, print the last output of the guest')
    options = parser.parse_args()
    if options.list:
        print('\n'.join(f'{group}: {name}' for group, rows in groups(None) for name, _, quick in rows if options.full or quick))
        return 0
    report = Report(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the exit runs the clean-up
    if why := guest.why_not():
        report.skip('all', why)
    else:
        run(report)
    return report.summary()


if __name__ == '__main__':
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
