#!/usr/bin/env python3
"""Measures the latency and the message rate that a user keeps while another user attacks, over rocid's loopback.

    tests/bench/isolation.py [--build DIR] [--rounds N] [--only TEXT]

The victim is perftest with 64 bytes: p99 of ib_write_lat, messages per second of ib_write_bw. Its figures alone and beside an attacker are
measured in turn, N times; the table has the medians. Victim and attacker are two users, so the fair share of each is half of an engine. The
goals are a p99 of at most 2 times the p99 alone, and a rate of at least a quarter of the rate alone, that is, half of the fair share. The
engine and all programs share the CPUs of this machine, so the figures also depend on the CPU time that the programs use. Needs root, to
become two users.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from loss import TOP, Rocid

VICTIM, ATTACKER = 65532, 65533
PORT = 18970
WORST_P99, LEAST_RATE = 2.0, 0.25
SETTLE = 1.0  # seconds from the start of an attacker to the first measurement
STORMS = Path(__file__).with_name("storms.py")
# By name: the perftest command that both sides of the attacker run, or the argument of storms.py.
ATTACKERS = {
    "WRITEs of 1 MiB": "ib_write_bw -s 1048576 -q 4",
    "READ storm": "ib_read_bw -s 65536 -q 16",
    "256 QPs": "ib_write_bw -s 64 -q 256 -t 16",
    "RNR storm": "ib_send_bw -s 64 -q 16 -r 1",
    "incast of SENDs to events": "ib_send_bw -s 4096 -q 8 -e",
    "registration storm": "register",
    "connection flood": "connect",
    "doorbell flood": "doorbell",
}


def as_user(uid, command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


class Pair:
    """Server and client of perftest, which run as one user."""

    def __init__(self, rocid, uid, port, command):
        self.rocid, self.uid = rocid, uid
        self.command = [*command.split(), "-F", "-x", "1", "-p", str(port)]
        self.server = self.start("roci1")
        time.sleep(0.5)

    def start(self, device, *more, **options):
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(as_user(self.uid, [*self.command, "-d", device, *more]), env=self.rocid.env, text=True, **options)

    def client(self, **options):
        return self.start("roci0", "127.0.0.1", **options)

    def end(self):
        end(self.server)


def end(process):
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(rocid, command, column):
    """Returns the figure in a column of the client's line of results, or None if the run failed."""
    pair = Pair(rocid, VICTIM, PORT, command)
    client = pair.client(stdout=subprocess.PIPE)
    try:
        text, _ = client.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return None
    finally:
        pair.end()
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*64\s+\d+\s", line)]
    return float(rows[-1][column]) if rows and client.returncode == 0 else None


def victim(rocid):
    """Returns (p99 in us, million messages per second)."""
    return measure(rocid, "ib_write_lat -s 64 -n 20000", 7), measure(rocid, "ib_write_bw -s 64 -n 200000", 4)


class Attack:
    def __init__(self, rocid, what):
        if what.startswith("ib_"):
            self.pair = Pair(rocid, ATTACKER, PORT + 1, f"{what} -D 300")
            self.processes = [self.pair.client(), self.pair.server]
        else:
            self.processes = [subprocess.Popen(as_user(ATTACKER, [sys.executable, str(STORMS), what]), env=rocid.env)]
        time.sleep(SETTLE)

    def alive(self):
        return all(p.poll() is None for p in self.processes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()


def median(values):
    return statistics.median(values) if values and None not in values else None


def row(build, name, rounds):
    """Prints a row of the table. Returns False if a goal was missed, a program failed or the attacker ended by itself."""
    alone, beside, died = [], [], False
    with Rocid(build, ["rocid.socket_mode=0o666"]) as rocid:
        os.chmod(rocid.folder.name, 0o755)
        for _ in range(rounds):
            alone.append(victim(rocid))
            with Attack(rocid, ATTACKERS[name]) as attack:
                beside.append(victim(rocid))
                died |= not attack.alive()
    a, b = ([median([v[i] for v in runs]) for i in range(2)] for runs in (alone, beside))
    if None in a + b or died:
        print(f"| {name} | {'the attacker ended by itself' if died else 'a program failed'} | | | | | | |", flush=True)
        return False
    latency, rate = b[0] / a[0], b[1] / a[1]
    good = latency <= WORST_P99 and rate >= LEAST_RATE
    print(f"| {name} | {a[0]:.1f} | {b[0]:.1f} | {latency:.2f} | {a[1]:.3f} | {b[1]:.3f} | {rate:.2f} | {'yes' if good else 'no'} |", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="attackers whose name has this text")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root, to run victim and attacker as two users")
    print(f"{len(os.sched_getaffinity(0))} CPUs for rocid's engine and all programs, loopback, medians of {args.rounds}\n")
    print("| attacker | p99 alone, us | beside | times | M messages/s alone | beside | share | goal |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    met = [row(args.build.resolve(), name, args.rounds) for name in ATTACKERS if args.only in name]
    print(f"\n{sum(met)} of {len(met)} attackers leave the victim its share")
    return 0


if __name__ == "__main__":
    sys.exit(main())
