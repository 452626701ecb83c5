#!/usr/bin/env python3
"""Tests Rocinante with the Linux kernel's Soft-RoCE in a QEMU guest as the peer. Both sides act as client and as server.

    tests/interop/rxe/run.py [--quick | --full] [--port af_packet udp routed] [--only TEXT] [--list] [--verbose] [--write]

--port selects how rocid is connected to the link to the guest: by a packet socket (af_packet), by a UDP socket (udp), or by a UDP socket behind a
router (routed). --full selects all three.

Prints PASS or FAIL per case. Ends with `N passed, N failed, N skipped`. Needs QEMU, a tap and a network namespace (root).
"""
import argparse
import contextlib
import dataclasses
import signal
import subprocess
import sys
import time
import traceback

import bench
import cases
import guest
import image
import page

sys.path += [str(bench.REPO / folder) for folder in ('tests/conformance', 'tests/interop/wire')]
import judge  # noqa: E402

MOST = 64 << 20  # maximum number of captured bytes per case
DEADLINE = 20 * 60  # seconds for all cases; later cases are skipped, and the report counts them


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.kernel = ''
        self.rows = []  # (case, verdict, seconds, output of the programs)

    def say(self, verdict, seconds, name, why=''):
        print(f'{verdict} {seconds:6.1f} s  {name}' + (f'\n    {why.strip()}'.replace('\n', '\n    ') if why else ''), flush=True)

    def end(self):
        print(f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        return 1 if self.failed else 0


class Runner:
    def __init__(self, wire, report):
        self.wire, self.report, self.rocid, self.settings = wire, report, None, None
        self.stack = contextlib.ExitStack()
        self.gids, self.port = {}, 18000

    def use(self, net, settings):
        """Starts a rocid with these settings. If the running rocid has the same settings, keeps it."""
        if self.rocid is not None and self.settings == (net, settings) and self.rocid.process.poll() is None:
            return
        self.stack.close()
        self.rocid, self.settings = self.stack.enter_context(self.wire.rocid(net, settings)), (net, settings)
        self.gids = dict(zip(('ours', 'theirs'), self.wire.gids(self.rocid)))

    def words(self, case, command, ours):
        net = self.rocid.net
        address = (net.us if case.we_serve else net.them)[case.family]
        gid = self.gids['ours' if ours else 'theirs'][case.family]
        text = command.format(dev='roci0' if ours else 'rxe0', gid=gid, port=self.port, address=address,
                              side=net.side_us if case.we_serve else net.side_them)
        return text.replace('ops ', f'{bench.OPS} ', 1).split() if ours and text.startswith('ops ') else text.split() if ours else text

    def ready(self, case, server):
        """Waits until the server listens. If this cannot be detected, waits two seconds. Returns at once if the
        client itself waits for the server."""
        if case.listens == 'itself':
            return
        look = f'ss -ltnH "sport = :{self.port}"' if case.listens == 'tcp' else 'rdma resource show cm_id | grep LISTEN'
        if not case.we_serve:
            bench.wait_until(lambda: server.done() or self.wire.guest.run(look)[1].strip(), 30, 'their server listens')
        elif case.listens == 'tcp':
            bench.wait_until(lambda: server.process.poll() is not None or self.listening(), 30, 'our server listens')
        else:
            time.sleep(2)  # a listening rdma_cm id cannot be detected from outside

    def listening(self):
        command = [*self.wire.inside, 'ss', '-ltnH', f'sport = :{self.port}']
        return subprocess.run(command, capture_output=True, check=True).stdout

    def run(self, case):
        self.port += 1
        self.use(case.net, case.ours)
        self.wire.guest_loss(case.theirs)
        ours_is, theirs_is = ('server', 'client') if case.we_serve else ('client', 'server')
        ours, theirs = self.words(case, getattr(case, ours_is), True), self.words(case, getattr(case, theirs_is), False)
        with self.judged() if case.judged else contextlib.nullcontext(), self.counted(case):
            return self.both(case, ours, theirs)

    @contextlib.contextmanager
    def judged(self):
        """Checks the frames on the link during a `with` block."""
        watch = judge.Watch(bench.ROCI, self.rocid.socket, MOST)
        try:
            yield
        finally:
            frames = watch.stop()
        if why := watch.refusal or ('too much to judge all of it' if watch.cut() else '') or judge.complaint(frames):
            raise bench.Failure(why)

    @contextlib.contextmanager
    def counted(self, case):
        """Checks the number of loss inquiries that we send during a `with` block. Soft-RoCE must answer none of
        them."""
        before = self.rocid.counters()['loss_inquiries']
        yield
        now = self.rocid.counters()
        sent, used = now['loss_inquiries'] - before, now['loss_reports_used']
        if case.most_inquiries >= 0 and not 0 < sent <= case.most_inquiries or used:
            raise bench.Failure(f'{sent} loss inquiries were sent, and {used} reports were used')

    def both(self, case, ours, theirs):
        if case.we_serve:
            us = bench.Program(self.rocid, ours)
            self.ready(case, us)
            them = self.wire.guest.start(theirs, case.limit)
        else:
            them = self.wire.guest.start(theirs, case.limit)
            self.ready(case, them)
            us = bench.Program(self.rocid, ours)
        try:
            our_status, our_output = us.wait(case.limit)
            their_status, their_output = them.wait()
        finally:
            us.kill()
        if self.rocid.process.poll() is not None:
            raise bench.Failure(f'rocid died: {self.rocid.log()[-1500:]}')
        outputs = f'ours ({our_status}): {" ".join(ours)}\n{our_output[-900:]}\ntheirs ({their_status}): {theirs}\n{their_output[-900:]}'
        if our_status != 0 or their_status != 0 or case.shows not in our_output:
            raise bench.Failure(outputs)
        return outputs

    def attempt(self, case):
        """Runs a case, at most case.tries times. A failed case is repeated if it has faults, or if the guest itself
        has failed. The repetition uses a new guest, because Soft-RoCE may have hung."""
        start = time.monotonic()
        for number in range(1, case.tries + 1):
            try:
                outputs = self.run(case)
                self.report.passed += 1
                self.report.rows.append((case, 'passed' if number == 1 else f'passed, at try {number}', time.monotonic() - start, outputs))
                return self.report.say('PASS', time.monotonic() - start, case.name, outputs if VERBOSE else '')
            except guest.GuestError as error:
                why = f'guest: {error}'
            except bench.Failure as failure:
                why = str(failure)
            except Exception:  # an error in the test code also counts as a failure
                why = traceback.format_exc()
            if number == case.tries or not case.theirs and not case.ours and 'guest:' not in why:
                break
            print(f'again          {case.name}: {why[:300]}', flush=True)
            self.wire.restart_guest()
        self.report.failed += 1
        self.report.rows.append((case, 'failed', time.monotonic() - start, why))
        self.report.say('FAIL', time.monotonic() - start, case.name, why)
        with contextlib.suppress(Exception):
            self.wire.restart_guest()


VERBOSE = False


def run_on(make, chosen, report, end):
    """Runs all chosen cases on one link with one guest."""
    try:
        with make(bench.BUILD / 'guest') as wire:
            print(f'guest up after {wire.guest.boot_seconds:.1f} s', flush=True)
            report.kernel = wire.guest.must('uname -r').strip()
            runner = Runner(wire, report)
            with runner.stack:
                # Cases with the same settings run one after the other, so that they use the same rocid.
                for case in sorted(chosen, key=lambda c: (c.net, c.ours)):
                    if time.monotonic() < end:
                        runner.attempt(case)
                    else:
                        report.skipped += 1
                        print(f'SKIP           {case.name}: no time left')
    except image.CannotBuild as reason:
        report.skipped += len(chosen)
        print(f'SKIP all of Soft-RoCE: {reason}')
    except (guest.GuestError, bench.Failure) as error:
        report.failed += 1
        print(f'FAIL the guest does not boot, or rocid does not start: {error}')


WIRES = ((bench.Wire, ('tap', 'vlan', 'udp')), (bench.RoutedWire, ('routed',)), (bench.VhostWire, ('vhost',)))
PORTS = {'af_packet': 'tap', 'udp': 'udp', 'routed': 'routed'}  # the net of a case with net 'tap', by port


def on_ports(all_cases, ports):
    """Yields the cases with net 'tap' once per port, and the other cases once, with af_packet."""
    for port in ports:
        for case in all_cases:
            if case.net == 'tap' and port != 'af_packet':
                yield dataclasses.replace(case, net=PORTS[port], name=f'{port}: {case.name}')
            elif port == 'af_packet':
                yield case


def main():
    global VERBOSE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='run only the cases that CI runs (default)')
    parser.add_argument('--full', action='store_true', help='run all cases, on all kinds of ports')
    parser.add_argument('--port', nargs='+', choices=list(PORTS), help='how rocid is connected to the link to the guest (default: af_packet; with --full: all)')
    parser.add_argument('--only', default='', metavar='TEXT', help='run only cases whose name contains TEXT')
    parser.add_argument('--list', action='store_true', help='print the names of the cases and stop')
    parser.add_argument('--write', action='store_true', help='write the results of this run to docs/peers.md')
    parser.add_argument('--verbose', action='store_true', help='print the output of the programs')
    options = parser.parse_args()
    VERBOSE = options.verbose
    ports = options.port or (list(PORTS) if options.full else ['af_packet'])
    chosen = [c for c in on_ports(cases.all_cases(), ports) if (options.full or options.only or c.quick) and options.only in c.name]
    if options.list:
        print('\n'.join(c.name for c in chosen))
        return 0
    report = Report()
    if why := guest.why_not():
        report.skipped = len(chosen)
        print(f'SKIP all of Soft-RoCE: {why}')
        return report.end()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the exit runs the clean-up
    end = time.monotonic() + DEADLINE * len(ports)
    for make, nets in WIRES:
        if some := [c for c in chosen if c.net in nets]:
            run_on(make, some, report, end)
    if options.write:
        page.write(bench.REPO / 'docs/peers.md', report.rows, report.kernel)
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
