#!/usr/bin/env python3
"""Runs Debian's unmodified RDMA programs over rocid.

    tests/conformance/run.py [--quick | --full] [--only TEXT] [--list] [--kills N] [--seed N]

Prints PASS, FAIL or SKIP per case. A line with FAIL contains the reason and, for cases of Debian's programs, the command that repeats the case
by hand. Ends with `N passed, N failed, N skipped`.
"""
import argparse
import random
import shutil
import sys
import time
import traceback

import badinput
import cases
import config_errors
import connection_errors
import connection_load
import connections
import endings
import ephemeral
import exam
import fabric
import four_devices
import hostile
import kills
import lab
import lacks
import memory_cases
import metrics_cases
import pairs
import pcap
import plot_cases
import single
import starts
import stat_cases
import top_cases
import view_cases

FAULTS = lab.REPO / 'tests/conformance/faults.toml'


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, name, body, by_hand=None):
        start = time.monotonic()
        try:
            body()
        except lab.Failure as failure:
            why = str(failure)
        except Exception:  # an error in the test code also counts as a failure
            why = traceback.format_exc()
        else:
            self.passed += 1
            print(f'PASS {time.monotonic() - start:6.1f} s  {name}', flush=True)
            return
        self.failed += 1
        print(f'FAIL {time.monotonic() - start:6.1f} s  {name}\n    ' + why.strip().replace('\n', '\n    '))
        if by_hand:
            print(f'    by hand: {by_hand}')
        sys.stdout.flush()

    def skip(self, name, why):
        self.skipped += 1
        print(f'SKIP           {name}: {why}', flush=True)

    def end(self):
        print(f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        return 1 if self.failed or not self.passed else 0


def run_pairs(report, rocid, gids, chosen, quick):
    for pair in chosen:
        if shutil.which(pair.program) is None:
            report.skip(pair.name, f'{pair.program} is not installed (./dev setup)')
            continue
        report.run(pair.name, lambda p=pair: pairs.run_pair(rocid, p, gids, quick), pairs.by_hand(rocid, pair, gids, quick))


def run_connections(report, rocid, rows):
    for row in rows:
        if why := connections.missing(row):
            report.skip(row.name, why)
        else:
            report.run(row.name, lambda r=row: connections.run_row(rocid, r), connections.by_hand(rocid, row))


def run_built(report, missing, some, wanted, *arguments):
    """Runs the wanted cases of `some`. If `missing` is not empty, skips these cases and prints `missing` as the
    reason."""
    for name, case in some.items():
        if not wanted(name):
            continue
        if missing:
            report.skip(name, missing)
        else:
            report.run(name, lambda c=case: c(*arguments))


def in_rocid(report, config, body):
    """Runs `body(rocid, gids)` with a rocid that has this configuration. Afterwards the rocid must stop without an
    error."""
    try:
        with lab.Rocid(config) as rocid:
            body(rocid, {device: lab.gid_indexes(rocid, device) for device in single.DEVICES})
            report.run(f'rocid stops cleanly{" (faults)" if config else ""}', lambda: stop_cleanly(rocid))
    except (lab.Failure, OSError) as failure:
        why = str(failure)
        report.run(f'rocid serves{" with faults" if config else ""}', lambda: fail(why))


def fail(why):
    raise lab.Failure(why)


def stop_cleanly(rocid):
    rocid.check_alive()
    rocid.process.terminate()
    code = rocid.process.wait(20)
    if code != 0:
        fail(f'SIGTERM: exit code {code}; its log ends:\n{rocid.log()[-1500:]}')


def clean_cases(report, options, wanted):
    def body(rocid, gids):
        for name, case in single.CASES.items():
            if wanted(name):
                report.run(name, lambda c=case: c(rocid))
        run_pairs(report, rocid, gids, [p for p in cases.pairs(options.quick) if not p.faults and wanted(p.name)], options.quick)
        for name, case in (badinput.CASES | hostile.CASES | pcap.CASES | plot_cases.CASES | stat_cases.CASES).items():
            if wanted(name):
                report.run(name, lambda c=case: c(rocid, gids))
        for name, (case, program) in fabric.CASES.items():
            if wanted(name):
                why = fabric.missing(program)
                report.skip(name, why) if why else report.run(name, lambda c=case: c(rocid))
        run_built(report, None, view_cases.CASES, wanted, rocid)
        run_connections(report, rocid, [row for row in connections.rows(options.quick) if wanted(row.name)])
        run_built(report, None, connections.CASES, wanted, rocid)
        run_built(report, metrics_cases.no_node_exporter(), metrics_cases.NODE, wanted, rocid, gids)
        run_built(report, exam.missing(), exam.CASES, wanted, rocid)
        run_built(report, exam.missing_cm(), exam.CM_CASES, wanted, rocid)
        run_built(report, top_cases.missing(), top_cases.CASES, wanted, rocid)
        run_built(report, top_cases.no_terminal(), top_cases.IN_TERMINAL, wanted, rocid)
        run_built(report, connection_errors.missing(), connection_errors.CASES, wanted, rocid)
        run_built(report, connection_load.missing(), connection_load.cases(options.quick), wanted, rocid)
        storm = f'kill -9 of either side, {options.kills} times'
        if wanted(storm):
            report.run(storm, lambda: kills.storm(rocid, gids, options.kills, options.seed),
                       f'tests/conformance/run.py --only kill --kills {options.kills} --seed {options.seed}')
    in_rocid(report, None, body)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='run fewer cases with fewer iterations, as CI does')
    parser.add_argument('--full', action='store_true', help='run all cases (the default without --quick), and make 1000 kills instead of 100')
    parser.add_argument('--only', default='', metavar='TEXT', help='run only cases whose name contains TEXT')
    parser.add_argument('--list', action='store_true', help='print the names of the cases and stop')
    parser.add_argument('--kills', type=int, help='number of kills by SIGKILL (default: 100, with --quick 20, with --full 1000)')
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 30), help='seed of the random kills')
    options = parser.parse_args()
    options.kills = options.kills or (20 if options.quick else 1000 if options.full else 100)
    return options


def main():
    options = parse_options()
    if options.list:
        names = [*single.CASES, *badinput.CASES, *hostile.CASES, *pcap.CASES, *plot_cases.CASES, *plot_cases.ALONE, *plot_cases.BROWSED, *stat_cases.CASES, *stat_cases.ALONE, *metrics_cases.ALONE, *metrics_cases.PROMTOOL, *metrics_cases.NODE, *exam.CASES, *exam.CM_CASES, *top_cases.CASES, *top_cases.IN_TERMINAL, *config_errors.CASES, *starts.CASES, *memory_cases.CASES, *memory_cases.UNPRIVILEGED, *ephemeral.CASES, *endings.CASES, *fabric.CASES, *connections.CASES,
                 *(p.name for p in cases.pairs(options.quick)), *(r.name for r in connections.rows(options.quick)),
                 *connection_load.cases(options.quick), *connection_load.faulty_cases(options.quick), *four_devices.CASES, *connection_errors.CASES, *connection_errors.ALONE, *view_cases.CASES, *view_cases.IN_CONTAINER, *lacks.CASES, *lacks.AS_USER]
        print('\n'.join(names))
        return 0
    report = Report()
    wanted = lambda name: options.only in name
    faulty = [p for p in cases.pairs(options.quick) if p.faults and wanted(p.name)]
    clean_cases(report, options, wanted)
    if faulty:
        in_rocid(report, FAULTS, lambda rocid, gids: run_pairs(report, rocid, gids, faulty, options.quick))
    if any(map(wanted, connection_load.faulty_cases(options.quick))):
        in_rocid(report, connection_load.HALF_LOST,
                 lambda rocid, gids: run_built(report, connection_load.missing(), connection_load.faulty_cases(options.quick), wanted, rocid))
    if any(map(wanted, four_devices.CASES)):
        in_rocid(report, four_devices.CONFIG, lambda rocid, gids: run_built(report, None, four_devices.CASES, wanted, rocid, gids))
    run_built(report, connection_errors.missing(), connection_errors.ALONE, wanted)
    run_built(report, lacks.missing(), lacks.CASES, wanted)
    run_built(report, lacks.missing_user(), lacks.AS_USER, wanted)
    run_built(report, view_cases.missing(), view_cases.IN_CONTAINER, wanted)
    run_built(report, memory_cases.missing(), memory_cases.CASES, wanted)
    run_built(report, memory_cases.no_other_users(), memory_cases.UNPRIVILEGED, wanted)
    for name, case in (config_errors.CASES | starts.CASES | plot_cases.ALONE | stat_cases.ALONE).items():
        if wanted(name):
            report.run(name, case)
    run_built(report, 'only with --full' if options.quick else plot_cases.no_browser(), plot_cases.BROWSED, wanted)
    run_built(report, metrics_cases.missing(), metrics_cases.ALONE, wanted)
    run_built(report, metrics_cases.no_promtool(), metrics_cases.PROMTOOL, wanted)
    for name, (case, why_not) in (ephemeral.CASES | endings.CASES).items():
        if wanted(name):
            report.skip(name, why_not()) if why_not() else report.run(name, case)
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
