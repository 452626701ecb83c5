#!/usr/bin/env python3
"""Measures the share of bandwidth that perftest's bandwidth programs keep if frames are lost, over rocid's loopback.

    tests/bench/loss.py [--build DIR] [--seconds N] [--rounds N] [--only write send read] [--mode reports selective back-n adaptive] [--drops P ...]
                        [--json FILE]

rocid itself drops frames at random, in each direction (section [fault] of its configuration). Each row is one QP with 64 KiB per
message at MTU 4096. The shares of a row are relative to the run without loss in the same round. With --rounds N, each figure is the
median of N rounds. Prints a table in Markdown.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from local_rocid import Rocid, wait_listening

TOP = Path(__file__).resolve().parent.parent.parent
PROGRAMS = {"write": "ib_write_bw", "send": "ib_send_bw", "read": "ib_read_bw"}
MODES = {
    "reports": [],
    "selective": ["engine.loss_reports=off"],
    "back-n": ["engine.repeat=go-back-n", "engine.reorder_frames=0"],
    "adaptive": ["congestion.policy=adaptive"],
}
DROPS = (0, 0.0001, 0.001, 0.01, 0.03, 0.05)
PORT = 18997
# Also without loss, the frames pass rocid's fault injection, which takes 1 to 3 % of the time, and contain an ICRC (engine.loopback_icrc). This
# probability loses no frame in practice.
ALMOST_NEVER = 1e-12


def gigabits(rocid, program, seconds):
    """Returns the bandwidth of one run. Returns None if the run failed or did not end in time."""
    command = [program, "-F", "-x", "1", "-m", "4096", "-s", "65536", "-D", str(seconds), "-p", str(PORT), "--report_gbits"]
    server = subprocess.Popen([*command, "-d", "roci1"], env=rocid.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_listening(PORT)
        done = subprocess.run([*command, "-d", "roci0", "127.0.0.1"], env=rocid.env, capture_output=True, text=True,
                              timeout=30 + 3 * seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s*65536\s+\d+\s", line)]
    return float(rows[-1][3]) if rows and done.returncode == 0 else None


def share(figures, whole):
    """Returns the median of the shares of the rounds, or None if a run failed. The two runs of a round are close in time, so a CPU whose
    speed changes has little effect on their share."""
    return None if None in figures or None in whole else statistics.median(f / w for f, w in zip(figures, whole))


def measure(args, mode):
    """Returns the figures of all runs by program and share of lost frames."""
    figures = {(name, drop): [] for name in args.only for drop in args.drops}
    for done in range(args.rounds):
        first = done % len(args.drops)  # the first run of a round was often the fastest, so each loss is the first in some rounds
        for drop in [*args.drops[first:], *args.drops[:first]]:
            with Rocid(args.build.resolve(), [*MODES[mode], f"fault.drop={drop or ALMOST_NEVER}"]) as rocid:
                for name in args.only:
                    figures[name, drop].append(gigabits(rocid, PROGRAMS[name], args.seconds))
        print(f"{mode}: round {done + 1} of {args.rounds}", file=sys.stderr, flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--seconds", type=int, default=2, help="duration of each run in seconds")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs per figure")
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--mode", nargs="+", choices=list(MODES), default=["reports", "selective", "back-n"])
    parser.add_argument("--drops", nargs="+", type=float, default=DROPS, help="shares of the frames that rocid drops; the first share must be 0")
    parser.add_argument("--json", type=Path, help="file for the shares (loss_chart.py draws them)")
    args = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} CPUs, three busy threads (one engine, two programs), loopback, 64 KiB per message, MTU 4096, "
          f"{args.seconds} s per run, median of {args.rounds}\n")
    print("| program | loss treated by | Gb/s without loss | " + " | ".join(f"{100 * d:g} %" for d in args.drops[1:]) + " |")
    print("| --- | --- | ---: |" + " ---: |" * (len(args.drops) - 1), flush=True)
    broken, rows = False, []
    for mode in args.mode:
        figures = measure(args, mode)
        for name in args.only:
            runs = [figures[name, drop] for drop in args.drops]
            broken |= any(None in r for r in runs)
            shares = [share(r, runs[0]) for r in runs]
            rows.append({"program": PROGRAMS[name], "mode": mode, "shares": list(zip(args.drops, shares))})
            print(f"| {PROGRAMS[name]} | {mode} | {'error' if None in runs[0] else f'{statistics.median(runs[0]):.1f}'} | "
                  + " | ".join("error" if s is None else f"{100 * s:.1f} %" for s in shares[1:]) + " |", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
