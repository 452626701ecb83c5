#!/usr/bin/env python3
"""Measures messages between two programs that share CPUs with rocid's engine. Compares them with TCP and with a transfer without transport.

    tests/bench/shared.py [--build DIR] [--rounds 3] [--seconds 1] [--only REGEX] [--set OPTION=VALUE] [--json FILE]

There is a row per condition (nothing else runs; two busy programs; everything on one CPU) and program. A figure is half a round trip of 64 bytes
through the loopback device, in microseconds: the median of --rounds runs that alternate between the programs of a condition. shared_floors.cpp
measures TCP and the transfer without transport. The row `wake-ups` counts how often the threads of an idle rocid go to sleep. Run it on a machine
that does nothing else.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from local_rocid import ENDS_WITH_US, Rocid, end_on_signals, wait_listening

TOP = Path(__file__).resolve().parent.parent.parent
PORT = 18996
PROBE, MOST = 100, 20000  # number of messages in a probe run, and maximum number in a run
LIMIT = 60  # maximum duration of a run in seconds
ENGINE = re.compile(r"rte-worker|lcore|engine")  # names of the threads of rocid that run an engine

# With `sessions`, rocid and each program run in separate sessions, as in different terminals. The kernel schedules
# each session as a group (sched_autogroup_enabled). A container is also a group. sched_yield() then gives the CPU
# only to threads of the same group.
@dataclasses.dataclass
class Condition:
    busy: int = 0  # number of other programs that use the CPU all the time
    one_cpu: bool = False
    sessions: bool = False

    def prefix(self):
        return [*ENDS_WITH_US, *(["taskset", "-c", str(min(os.sched_getaffinity(0)))] if self.one_cpu else [])]


CONDITIONS = {"idle": Condition(), "idle, sessions": Condition(sessions=True), "2 busy": Condition(busy=2),
              "2 busy, sessions": Condition(busy=2, sessions=True), "1 CPU": Condition(one_cpu=True),
              "1 CPU, sessions": Condition(one_cpu=True, sessions=True)}
PERFTEST = {"ib_send_lat": ["ib_send_lat"], "ib_write_lat": ["ib_write_lat"], "ib_send_lat -e": ["ib_send_lat", "-e"]}
FLOORS = {"hand-over, yield": ["yield", "0"], "hand-over, yield after 100 looks": ["yield", "100"], "hand-over, futex": ["futex", "0"],
          "hand-over, futex after 1000 looks": ["futex", "1000"], "TCP": ["tcp"], "two spinning programs": ["spin"]}

LATENCIES = ("ib_send_lat", "ib_write_lat")


def list_goals():
    """Yields (condition, figure, quantile of the figure, anchor, quantile of the anchor, highest permitted ratio)."""
    for name, c in CONDITIONS.items():
        for what in LATENCIES:
            if not c.busy and not c.one_cpu:
                yield name, what, "p50", "floor", "p50", 1.4
                yield name, what, "p99", what, "p50", 2
            yield name, what, "p50", "TCP", "p50", 1 if c.busy else 3 if c.one_cpu else 0.5
        yield name, "ib_send_lat -e", "p50", "TCP", "p50", 3


@contextlib.contextmanager
def busy_programs(condition):
    running = [subprocess.Popen([*condition.prefix(), "sha256sum", "/dev/zero"], stdout=subprocess.DEVNULL, start_new_session=condition.sessions)
               for _ in range(condition.busy)]
    try:
        yield
    finally:
        for p in running:
            p.kill()
            p.wait()


def end(process):
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_server(rocid, command):
    server = subprocess.Popen([*command, "-d", "roci1"], env=rocid.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=rocid.own_session)
    wait_listening(PORT)
    return server


class Bench:
    def __init__(self, options):
        self.options, self.figures, self.wakes = options, {}, {}

    def floor(self, condition, name, messages):
        program = [*condition.prefix(), str(self.options.build / "tests/bench/shared_floors"), *FLOORS[name], str(messages),
                   *(["sessions"] if condition.sessions else [])]
        done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=True)
        figures = [json.loads(line) for line in done.stdout.splitlines()]
        return {f["name"].rsplit(".", 1)[1]: f["value"] / 1000 for f in figures}

    def perftest(self, rocid, condition, name, messages):
        """Returns the columns t_typical and 99 %, and the number of sleeps of rocid's threads per message."""
        command = [*condition.prefix(), *PERFTEST[name], "-F", "-x", "1", "-s", "64", "-n", str(messages), "-p", str(PORT)]
        server = start_server(rocid, command)
        try:
            before = rocid.sleeps()
            done = subprocess.run([*command, "-d", "roci0", "127.0.0.1"], env=rocid.env, capture_output=True, text=True, timeout=LIMIT,
                                  start_new_session=condition.sessions)
            after = rocid.sleeps()
        finally:
            end(server)
        rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s*64\s+\d+\s", line)]
        if done.returncode != 0 or not rows:
            raise subprocess.SubprocessError(f"{name} gave no figure: {(done.stdout + done.stderr)[-300:]}")
        slept = {n: (after[n] - before.get(n, 0)) / (2 * messages) for n in after}
        return {"p50": float(rows[-1][4]), "p99": float(rows[-1][7]), "engine sleeps": sum(v for n, v in slept.items() if ENGINE.search(n)),
                "other sleeps": sum(v for n, v in slept.items() if not ENGINE.search(n))}

    def run(self, rocid, condition, name, messages):
        try:
            return self.floor(condition, name, messages) if name in FLOORS else self.perftest(rocid, condition, name, messages)
        except subprocess.SubprocessError as why:
            print(f"{name}: {why}", flush=True)
            return None

    def condition(self, name):
        condition = CONDITIONS[name]
        wanted = [s for s in (*FLOORS, *PERFTEST) if re.search(self.options.only, f"{name}: {s}")]
        if not wanted:
            return
        runs, messages = {s: [] for s in wanted}, {}
        with Rocid(self.options.build, self.options.set, condition.prefix(), condition.sessions) as rocid, busy_programs(condition):
            for s in wanted:  # finds the number of messages that take --seconds; the figures of this run are not used
                probe = self.run(rocid, condition, s, PROBE) or {"p50": 1e6, "p99": 1e6}
                each = 2e-6 * max(probe["p50"], probe["p99"] / 20)
                messages[s] = int(min(max(self.options.seconds / each, PROBE), MOST))
            for _ in range(self.options.rounds):
                for s in wanted:
                    runs[s].append(self.run(rocid, condition, s, messages[s]))
        for s, of in runs.items():
            if of := [r for r in of if r]:
                self.figures[f"{name}: {s}"] = {k: statistics.median(r[k] for r in of) for k in of[0]} | {"runs": of}
                print(row_of(f"{name}: {s}", self.figures[f"{name}: {s}"]), flush=True)

    def idle_wakes(self, seconds=10):
        """Counts the sleeps per second of the threads of an idle rocid: without connections, and with a pair of QPs
        whose programs are stopped."""
        if not re.search(self.options.only, "wake-ups"):
            return

        def count(rocid):
            time.sleep(1)
            before, start = rocid.sleeps(), time.monotonic()
            time.sleep(seconds)
            return (sum(rocid.sleeps().values()) - sum(before.values())) / (time.monotonic() - start)
        with Rocid(self.options.build, self.options.set) as rocid:
            self.wakes["nothing connected"] = count(rocid)
            command = ["ib_send_lat", "-e", "-F", "-x", "1", "-s", "64", "-n", "10000000", "-p", str(PORT)]
            programs = [start_server(rocid, [*ENDS_WITH_US, *command])]
            programs.append(subprocess.Popen([*ENDS_WITH_US, *command, "-d", "roci0", "127.0.0.1"], env=rocid.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            try:
                time.sleep(1)
                for p in programs:
                    p.send_signal(signal.SIGSTOP)
                self.wakes["one idle pair of QPs"] = count(rocid)
            finally:
                for p in programs:
                    p.kill()
                    p.wait()

    def best_floor(self, condition, quantile):
        of = [v[quantile] for k, v in self.figures.items() if k.startswith(f"{condition}: hand-over")]
        return min(of) if of else None

    def goals(self):
        rows = []
        for condition, what, quantile, anchor, of, most in list_goals():
            mine = self.figures.get(f"{condition}: {what}")
            other = self.best_floor(condition, of) if anchor == "floor" else self.figures.get(f"{condition}: {anchor}", {}).get(of)
            if mine and other:
                rows.append({"goal": f"{condition}: {what} {quantile} / {anchor} {of}", "ratio": mine[quantile] / other, "most": most})
        for what, most in (("nothing connected", 0), ("one idle pair of QPs", 1)):
            if what in self.wakes:
                rows.append({"goal": f"wake-ups of an idle rocid per second, {what}", "ratio": self.wakes[what], "most": most})
        return rows


def row_of(name, f):
    slept = f" {f['engine sleeps']:.2f} | {f['other sleeps']:.2f} |" if "engine sleeps" in f else " | |"
    return f"| {name} | {f['p50']:.2f} | {f['p99']:.2f} |{slept}"


def show(bench, load):
    print(f"\n{os.cpu_count()} CPUs, 3 threads with work (engine, two programs) and the busy programs of the row, loopback port, no loss; load before: {load:.1f}\n")
    print("| half round trip of 64 B, us | p50 | p99 | lcore's sleeps per message | sleeps of rocid's other threads |\n| --- | ---: | ---: | ---: | ---: |")
    for name, f in bench.figures.items():
        print(row_of(name, f))
    print("\n| goal | ratio | at most | |\n| --- | ---: | ---: | --- |")
    for r in bench.goals():
        print(f"| {r['goal']} | {r['ratio']:.2f} | {r['most']} | {'reached' if r['ratio'] <= r['most'] else 'NOT REACHED'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="approximate duration of a run in seconds")
    parser.add_argument("--only", default="", help="measure only rows whose name matches this regular expression")
    parser.add_argument("--set", action="append", default=[], help="an option of rocid: section.option=value")
    parser.add_argument("--json", type=Path, help="file for the figures; default: BUILD/shared.json")
    options = parser.parse_args()
    options.build = options.build.resolve()
    end_on_signals()
    load, bench = os.getloadavg()[0], Bench(options)
    for name in CONDITIONS:
        bench.condition(name)
    bench.idle_wakes()
    result = {"cpus": os.cpu_count(), "load": load, "figures": bench.figures, "wakes": bench.wakes, "goals": bench.goals()}
    (options.json or options.build / "shared.json").write_text(json.dumps(result, indent=1) + "\n")
    show(bench, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
