#!/usr/bin/env python3
"""Measures the cost of counters and journal in instructions per message, against the same transport compiled without them.

    tests/bench/cost.py [--build DIR] [--bytes N] [--limit PERCENT]

Builds transport_uncounted and transport_unrecorded (compiled with -DROCI_UNCOUNTED and -DROCI_UNRECORDED) in the build folder. callgrind counts
the instructions of both ends together, with one QP and 32 messages at a time. A figure is the difference between a run of 120 rounds and a run
of 20 rounds, per message. Instruction counts have no noise. Prints a table in Markdown. The exit status is 1 if the counters or the journal cost
more than PERCENT.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
WITH, WITHOUT = "transport_bench", {"counters": "transport_uncounted", "journal": "transport_unrecorded"}
OPERATIONS = {"write": "RDMA WRITE", "send": "SEND", "read": "RDMA READ"}
BATCH, FEW, MANY = 32, 20, 120


def build(folder):
    targets = [f"tests/bench/{name}" for name in (WITH, *WITHOUT.values())]
    done = subprocess.run(["ninja", "-C", str(folder), *targets], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{folder} cannot build {', '.join(targets)}; it needs gcc, -Dtests=true and optimisation:\n{(done.stdout + done.stderr)[-2000:]}")


def counted(program, operation, size, rounds):
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", str(program), "--fixed", operation,
                                   str(size), "1", str(BATCH), str(rounds)], capture_output=True, text=True, timeout=600, check=False)
        except FileNotFoundError:
            sys.exit("valgrind counts the instructions: apt-get install valgrind")
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        sys.exit(f"{program} failed: {done.stderr[-1000:]}")
    return int(found.group(1))


def per_message(program, operation, size):
    return (counted(program, operation, size, MANY) - counted(program, operation, size, FEW)) / ((MANY - FEW) * BATCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--bytes", type=int, default=64, help="bytes per message")
    parser.add_argument("--limit", type=float, default=1.0, help="largest permitted cost in percent, of the counters and of the journal separately")
    args = parser.parse_args()
    build(args.build)
    folder = args.build / "tests/bench"
    print("| operation | instructions | " + " | ".join(f"without {what} | cost" for what in WITHOUT) + " |")
    print("| --- | ---: |" + " ---: | ---: |" * len(WITHOUT), flush=True)
    most = 0.0
    for operation, title in OPERATIONS.items():
        whole = per_message(folder / WITH, operation, args.bytes)
        cells = []
        for name in WITHOUT.values():
            without = per_message(folder / name, operation, args.bytes)
            share = 100 * (whole - without) / without
            most = max(most, share)
            cells += [f"{without:,.1f}", f"{share:.2f} %"]
        print(f"| {title} | {whole:,.1f} | " + " | ".join(cells) + " |", flush=True)
    if most > args.limit:
        print(f"\nOne costs {most:.2f} %, more than {args.limit:g} %.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
