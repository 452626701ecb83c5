#!/usr/bin/env python3
"""Measures the latency and the message rate that a user keeps while another user attacks, over rocid's loopback.

    tests/bench/isolation.py [--build DIR] [--rounds N] [--quick] [--only TEXT] [--all] [--threads]

The victim is perftest with 64 bytes: p99 of ib_send_lat, messages per second of ib_write_bw. The engine, the victim's programs and the
attacker's programs share the CPUs of this machine, and the kernel's scheduler divides the CPUs. Therefore each figure is measured in three
places, in turn, N times; the table has the means:

  alone     no other program runs.
  computing other programs of the attacker's user only compute: as many processes as the attacker has threads that never wait, and one
            more, because the attacker keeps the engine's thread busy, as any busy user of rocid may.
  attacked  the attacker runs.

The anchor is `computing`, because rocid cannot give the victim CPU time that the scheduler gives to other threads. Victim and attacker are
two users, so the fair share of the victim is half of what it has beside computing programs. The goals are a p99 of at most 2 times the
anchor and a rate of at least a quarter of the anchor, that is, half of the fair share. The column `attacker's CPUs` is the CPU time that the
attacker's programs use per second, next to that of the computing programs. Needs root, to become two users.
"""
import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from local_rocid import ENDS_WITH_US, Rocid, end_on_signals, wait_listening

TOP = Path(__file__).resolve().parent.parent.parent
VICTIM, ATTACKER = 65532, 65533
PORT = 18970
SETTLE = 1.0  # seconds from the start of an attacker to the first measurement
STORMS = Path(__file__).with_name("storms.py")
# The key is a name. The value is the program, and the number of its threads that never wait for long. A program is a
# command of perftest for both ends, an attacker of attackers.cpp, or storms.py.
ATTACKERS = {
    "WRITEs of 1 MiB, 4 QPs": ("ib_write_bw -s 1048576 -q 4", 1),
    "READs of 64 KiB, 16 QPs": ("ib_read_bw -s 65536 -q 16", 1),
    "atomics, 16 QPs": ("ib_atomic_bw -q 16", 1),
    "WRITEs of 64 B, 256 QPs": ("ib_write_bw -s 64 -q 256 -t 16", 1),
    "SENDs of 4 KiB, 8 QPs": ("ib_send_bw -s 4096 -q 8", 2),
    "receivers without receives (RNR)": ("attackers rnr", 0),
    "multicast to 64 QPs": ("attackers multicast", 1),
    "CQ overruns": ("attackers cq-overrun", 1),
    "doorbells of 30 sessions": ("storms.py", 1),
    "registrations": ("attackers registrations", 1),
    "QPs created and destroyed": ("attackers qps", 1),
    "control calls": ("attackers calls", 2),
    "sessions opened and closed": ("attackers sessions", 1),
    "rdma_cm connections": ("attackers connections", 1),
}
# The key is a name. The value is the command of perftest, the column of the figure, and a function that returns
# whether the figure reaches its goal.
VICTIMS = {
    "p99, us": ("ib_send_lat -s 64 -n 10000", 7, lambda figure, anchor: figure <= 2 * anchor),
    "M messages/s": ("ib_write_bw -s 64 -n 1000000", 4, lambda figure, anchor: figure >= anchor / 4),
}


def as_user(uid, command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *ENDS_WITH_US, *map(str, command)]


class Pair:
    """The server and the client of a perftest. Both run as the same user."""

    def __init__(self, rocid, uid, port, command):
        self.rocid, self.uid = rocid, uid
        self.command = [*command.split(), "-F", "-x", "1", "-p", str(port)]
        self.server = self.start("roci1")
        wait_listening(port)

    def start(self, device, *more, **options):
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(as_user(self.uid, [*self.command, "-d", device, *more]), env=self.rocid.env, text=True, **options)

    def client(self, **options):
        return self.start("roci0", "127.0.0.1", **options)

    def end(self):
        try:
            self.server.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


def measure(rocid, command, column):
    """Returns the figure in the column `column` of the client's result line. Returns None if the run has failed."""
    pair = Pair(rocid, VICTIM, PORT, command)
    client = pair.client(stdout=subprocess.PIPE)
    try:
        text, _ = client.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return None
    finally:
        pair.end()
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*64\s+\d+\s", line)]
    return float(rows[-1][column]) if rows and client.returncode == 0 else None


def cpu_seconds(pid):
    """Returns {thread name: CPU time in seconds}. The times of threads with the same name are added."""
    times = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, fields = re.match(r"\d+ \((.*)\) (.*)", (task / "stat").read_text()).groups()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        used = sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
        times[name] = times.get(name, 0) + used
    return times


class Programs:
    """The programs of the attacker's user."""

    def __init__(self, rocid, processes):
        self.rocid, self.processes = rocid, processes
        time.sleep(SETTLE)
        self.started, self.before, self.rocid_before = time.monotonic(), self.used(), cpu_seconds(rocid.process.pid)

    def used(self):
        return sum(sum(cpu_seconds(p.pid).values()) for p in self.processes)

    def cpus(self):
        """Returns the CPU time that the programs have used per second since the constructor."""
        return (self.used() - self.before) / (time.monotonic() - self.started)

    def rocid_cpus(self):
        seconds = time.monotonic() - self.started
        return {name: (used - self.rocid_before.get(name, 0)) / seconds for name, used in cpu_seconds(self.rocid.process.pid).items()}

    def alive(self):
        return all(p.poll() is None for p in self.processes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.wait()


def start(rocid, what):
    program, *rest = what.split()
    if program == "storms.py":
        return subprocess.Popen([sys.executable, STORMS, str(ATTACKER)], env=rocid.env)
    return subprocess.Popen(as_user(ATTACKER, [rocid.build / "tests/bench" / program, *rest]), env=rocid.env)


def computing(rocid, count):
    return Programs(rocid, [start(rocid, "attackers compute") for _ in range(count)])


def attacking(rocid, what):
    if what.startswith("ib_"):
        pair = Pair(rocid, ATTACKER, PORT + 1, f"{what} -D 300")
        return Programs(rocid, [pair.client(), pair.server])
    return Programs(rocid, [start(rocid, what)])


class Row:
    """The figures of all victims while one attacker runs."""

    def __init__(self, name, show_all):
        self.name, self.all = name, show_all
        self.program, self.busy = ATTACKERS[name]
        self.figures = {(victim, place): [] for victim in VICTIMS for place in ("alone", "computing", "attacked")}
        self.cpus = {"computing": [], "attacked": []}
        self.threads, self.died = {}, False

    def measure(self, rocid):
        places = {"alone": contextlib.nullcontext, "computing": lambda: computing(rocid, self.busy + 1), "attacked": lambda: attacking(rocid, self.program)}
        for place, start in places.items():
            with start() as programs:
                for victim, (command, column, _) in VICTIMS.items():
                    self.figures[victim, place].append(measure(rocid, command, column))
                if place == "attacked":
                    self.died |= not programs.alive()
                    self.threads = programs.rocid_cpus()
                if place != "alone" and not self.died:
                    self.cpus[place].append(programs.cpus())

    def print(self):
        """Prints one line per victim. Returns the number of goals that were reached."""
        reached = 0
        for victim, (_, _, good) in VICTIMS.items():
            runs = [self.figures[victim, place] for place in ("alone", "computing", "attacked")]
            if self.died or any(None in r for r in runs):
                print(f"| {self.name} | {victim} | {'the attacker ended by itself' if self.died else 'a program failed'} | | | | | |", flush=True)
                continue
            # The p99 of a round is either some 20 us or some 2 ms, as the scheduler places the threads. The median of a
            # few such figures depends on chance.
            alone, anchor, figure = map(statistics.fmean, runs)
            mine, theirs = (statistics.fmean(self.cpus[place]) for place in ("attacked", "computing"))
            reached += good(figure, anchor)
            if self.all:
                print("  " + "; ".join(f"{place}: " + " ".join(f"{r:.3g}" for r in run) for place, run in zip(("alone", "computing", "attacked"), runs)))
            print(f"| {self.name} | {victim} | {alone:.3g} | {anchor:.3g} | {figure:.3g} | {figure / anchor:.2f} | {mine:.1f} ({theirs:.1f}) | "
                  f"{'yes' if good(figure, anchor) else 'no'} |", flush=True)
        return reached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="measure one round, whatever --rounds is")
    parser.add_argument("--only", nargs="+", default=[""], help="measure only attackers whose name contains one of these texts")
    parser.add_argument("--all", action="store_true", help="also print the figures of every round")
    parser.add_argument("--threads", action="store_true", help="also print the CPU time that each thread of rocid uses per second while the attacker runs")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root, to run victim and attacker as two users")
    end_on_signals()
    rounds = 1 if args.quick else args.rounds
    print(f"{len(os.sched_getaffinity(0))} CPUs for rocid's engine and all programs, loopback, means of {rounds}\n")
    print("| attacker | victim | alone | beside computing programs | beside the attacker | ratio | attacker's CPUs | goal |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    reached = pairs = 0
    for name in ATTACKERS:
        if not any(text in name for text in args.only):
            continue
        row = Row(name, args.all)
        with Rocid(args.build.resolve(), ["rocid.socket_mode=0o666"]) as rocid:
            os.chmod(rocid.folder.name, 0o755)
            for _ in range(rounds):
                row.measure(rocid)
        reached += row.print()
        pairs += len(VICTIMS)
        if args.threads:
            print("  rocid: " + ", ".join(f"{name} {used:.2f}" for name, used in sorted(row.threads.items())), flush=True)
    print(f"\n{reached} of {pairs} pairs of attacker and victim reach the goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
