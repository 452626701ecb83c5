#!/usr/bin/env python3
"""Measures every figure and its anchor in one run.

    tests/bench/run.py [--quick] [--only WORD ...] [--build DIR] [--out DIR] [--save-baseline]

Prints a table, writes bench.json and bench.html (one file with its charts) into --out, and compares the ratios with tests/bench/baseline.json.
The exit status is 1 if a figure could not be measured, or if a ratio fell by the tolerance or more.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import page
import reach
import stages

# The settings of rocid. Frames contain an ICRC, as on a network, so that the figures can be compared with floors and baseline.
AS_ON_A_NETWORK = ["--set", "engine.loopback_icrc=always"]
HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent


class Run:
    """One run: the options, the measured figures by name, and the figures that could not be measured."""

    def __init__(self, quick, build, realtime):
        self.quick, self.build = quick, build
        # Prefixes of commands. With `realtime`, the engine runs on one CPU and the program on another CPU. Both have
        # a higher priority than all ordinary programs.
        self.engine_cpu = self.program_cpu = []
        if realtime:
            cpus = sorted(os.sched_getaffinity(0))
            self.engine_cpu, self.program_cpu = (["chrt", "-r", "5", "taskset", "-c", str(c)] for c in (cpus[0], cpus[-1]))
        self.figures, self.missing = {}, []
        self.env = dict(os.environ)

    def put(self, name, value, unit):
        self.figures[name] = {"value": value, "unit": unit}

    def miss(self, what, why):
        self.missing.append(f"{what}: {why}")
        print(f"  missing: {what}: {why}", flush=True)

    def program(self, path, *args, timeout=300, env=None):
        """Runs one of our programs. Each line of JSON that it prints becomes a figure."""
        command = self.program_cpu + [str(self.build / path), *args] + (["--quick"] if self.quick else [])
        if path.endswith("floors"):
            command = command[:3] + command[6:] if self.program_cpu else command  # no taskset: these programs choose the CPUs of their threads
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env or self.env)
        except (OSError, subprocess.TimeoutExpired) as e:
            return self.miss(path, str(e))
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                f = json.loads(line)
                self.put(f["name"], f["value"], f["unit"])
        if done.returncode != 0:
            self.miss(" ".join([path, *args]), (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])


# ---- measurements ---------------------------------------------------------------------------------------------------


def floors(run):
    run.program("tests/bench/floors")


def transport(run):
    """Measures the engine alone, without a rocid and a second thread. The rates are per second of CPU time. CPU time
    does not include the time of other programs."""
    # With --net-ring, DPDK's ring driver connects the devices, as in rocid.
    names = {"write/64/1/32": "transport.write.64B.1qp", "write/64/16/32": "transport.write.64B.16qp",
             "write/4096/16/32": "transport.write.4KiB.16qp", "write/64/16/1": "transport.write.64B.batch1.16qp", "write/64/10000/1": "transport.write.64B.batch1.10000qp",
             "write/64/10000/32": "transport.write.64B.batch32.10000qp",
             "send/64/16/32": "transport.send.64B.16qp", "read/64/16/32": "transport.read.64B.16qp",
             "write/65536/1/16": "transport.write.64KiB", "write/1048576/1/8": "transport.write.1MiB"}
    command = run.program_cpu + [str(run.build / "tests/bench/transport_bench"), "--net-ring", "--benchmark_format=json",
               f"--benchmark_min_time={0.05 if run.quick else 0.2}", "--benchmark_repetitions=3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return run.miss("transport_bench", done.stderr.strip()[-200:])
    best = {}
    for b in json.loads(done.stdout)["benchmarks"]:
        m = re.match(r"(\w+)/bytes:(\d+)/qps:(\d+)/batch:(\d+)", b["name"])
        figure = m and b.get("run_type") == "iteration" and names.get("/".join(m.groups()))
        if figure:
            best[figure] = max(best.get(figure, 0), b["items_per_second"])
    run.program("tests/bench/qp_memory")
    for figure, rate in best.items():
        run.put(figure, rate / 1e6, "Mmsg/s")
        if figure.endswith(("64KiB", "1MiB")):
            size = {"64KiB": 65536, "1MiB": 1 << 20}[figure.rsplit(".", 1)[1]]
            run.put(figure, rate * size / 1e9, "GB/s")


def sharing(run):
    """Counts the cache lines that move between cores per message. The cores are simulated, so every run gives the
    same figures."""
    program = run.build / "tests/bench/sharing/sharing"
    if not program.exists():
        return run.miss("sharing", "not built: it needs gcc, and a build without sanitizers")
    run.program("tests/bench/sharing/sharing", "--json")


def two_lcores(run):
    """Compares two engines of one host with one engine. Both are measured by the same program. Each engine has its
    own lcore. The client of the engine's QPs runs on the same lcore. The engines share the same tables as the engines
    of a rocid. With --crossed, the two QPs of a connection are on different engines, so every frame is handed over to
    the other engine."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return run.miss("two lcores", "one CPU")
    program = str(run.build / "tests/bench/transport_bench")
    prefix = run.program_cpu[:3]  # without taskset, because the program chooses the CPUs of its lcores
    kinds = {"transport.one_lcore": [["taskset", "-c", str(c), program, "--engines", "1"] for c in (cpus[0], cpus[-1])],
             "transport.two_lcores": [[program, "--engines", "2"]], "transport.two_lcores.crossed": [[program, "--engines", "2", "--crossed"]]}
    best = {}
    for _ in range(2):  # measures the kinds in turn, so that the load of other programs affects all of them
        for name, commands in kinds.items():
            for command in commands:
                try:
                    done = subprocess.run(prefix + command + (["--quick"] if run.quick else []), capture_output=True, text=True, timeout=60, check=True)
                except (OSError, subprocess.SubprocessError) as e:
                    return run.miss("two lcores", (getattr(e, "stderr", "") or str(e)).strip())
                best[name] = max(best.get(name, 0), json.loads(done.stdout)["value"])
    for name, rate in best.items():
        run.put(name, rate, "Mmsg/s")


def instructions(run):
    """Counts the instructions per message in the engine alone. A figure is the difference between two runs under
    callgrind. These counts have no noise."""
    def count(rounds, *what):
        with tempfile.TemporaryDirectory() as d:
            done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={d}/out",
                                   str(run.build / "tests/bench/transport_bench"), "--fixed", *what, str(rounds)],
                                  capture_output=True, text=True, timeout=300)
            return int(re.search(r"Collected : (\d+)", done.stderr).group(1))
    for op in ("write", "send", "read"):
        try:
            few, many = count(10, op, "64", "16", "32"), count(30, op, "64", "16", "32")
        except (OSError, AttributeError, subprocess.TimeoutExpired) as e:
            return run.miss("instruction counts (valgrind)", str(e))
        run.put(f"transport.instructions.{op}.64B", (many - few) / (20 * 16 * 32), "instr/msg")


def verbs(run):
    for mode in ("memory", "rate", "many", "bandwidth", "latency", "wake", "connect", "register"):
        run.program("tests/bench/verbs_bench", mode)


def control(run):
    """Measures control calls while 0, 4 and 16 other programs use the CPUs all the time."""
    run.program("tests/bench/control_bench")


def idle(run):
    """Measures the CPU time of an idle rocid while a program keeps a connected pair of QPs open."""
    holder = subprocess.Popen([str(run.build / "tests/bench/verbs_bench"), "hold"], env=run.env, stdin=subprocess.PIPE)
    time.sleep(0.7)
    ticks = os.sysconf("SC_CLK_TCK")

    def used():
        fields = Path(f"/proc/{run.rocid.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / ticks
    before, start = used(), time.time()
    time.sleep(2)
    run.put("rocid.idle_cpu", 100 * (used() - before) / (time.time() - start), "%")
    holder.stdin.close()
    holder.wait(timeout=10)


def two_sided(server, client, run, pause=0.5, timeout=60, alone=False, pinned=True, server_env=None):
    """Runs the server and the client of a program. Returns the output of the client. `alone` means that the programs
    do not use rocid, so the server runs on the engine's CPU. If `pinned` is false, the kernel chooses the CPUs."""
    if pinned:
        server, client = (run.engine_cpu if alone else run.program_cpu) + server, run.program_cpu + client
    s = subprocess.Popen(server, env=server_env or run.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(pause)
        return subprocess.run(client, env=run.env, capture_output=True, text=True, timeout=timeout).stdout
    finally:
        try:
            s.wait(timeout=3)
        except subprocess.TimeoutExpired:
            s.kill()
            s.wait()


def perftest(run):
    rows = [("perftest.write_bw.64B.no_postlist", ["ib_write_bw", "-s", "64", "-n", "200000"], "msg"),
            ("perftest.write_bw.64KiB", ["ib_write_bw", "-s", "65536", "-n", "20000"], "gb"),
            ("perftest.write_bw.1MiB", ["ib_write_bw", "-s", "1048576", "-n", "2000"], "gb"),
            ("perftest.send_lat.64B", ["ib_send_lat", "-s", "64", "-n", "20000"], "us")]
    for name, command, what in rows:
        if run.quick:
            command[-1] = str(int(command[-1]) // 4)
        command = command + ["-F", "-x", "1", "-p", "18999"] + ([] if what == "us" else ["--report_gbits"])
        try:
            out = two_sided(command + ["-d", "roci1"], command + ["-d", "roci0", "127.0.0.1"], run)
        except (OSError, subprocess.TimeoutExpired) as e:
            run.miss(name, str(e))
            continue
        rows_out = [line.split() for line in out.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
        if not rows_out:
            run.miss(name, f"{command[0]} gave no figure")
            continue
        row = [float(x) for x in rows_out[-1]]
        if what == "us":
            run.put(name + ".p50", row[4] * 1000, "ns")
        elif what == "msg":
            run.put(name, row[4], "Mmsg/s")
        else:
            run.put(name, row[3] / 8, "GB/s")


def ucx(run):
    """Measures UCX over shared memory and over TCP, and UCX over Rocinante."""
    over_us = {"UCX_TLS": "rc_verbs,ud_verbs", "UCX_NET_DEVICES": "roci1:1"}  # the client uses roci1, and the server uses roci0
    rivals = {"ucx_posix": {"UCX_TLS": "posix,self,sm"}, "ucx_tcp": {"UCX_TLS": "tcp,self"}, "ucx_rc_over_us": over_us}
    tests = [("rate.64B", ["-t", "ucp_put_bw", "-s", "64", "-n", "300000", "-w", "10000", "-O", "32"], "msg"),
             ("half_round_trip.64B", ["-t", "tag_lat", "-s", "64", "-n", "20000", "-w", "1000"], "lat"),
             ("bandwidth.64KiB", ["-t", "tag_bw", "-s", "65536", "-n", "5000", "-w", "200"], "bw"),
             ("bandwidth.1MiB", ["-t", "tag_bw", "-s", "1048576", "-n", "500", "-w", "20"], "bw")]
    for rival, settings in rivals.items():
        env = dict(run.env if rival == "ucx_rc_over_us" else os.environ, **settings, UCX_WARN_UNUSED_ENV_VARS="n")
        few = rival == "ucx_rc_over_us" and len(os.sched_getaffinity(0)) < 3
        if few:
            print("  UCX over us: two programs that poll and an engine share two CPUs: figures of scheduling", flush=True)
        for name, args, what in tests:
            if run.quick:
                args = [str(int(a) // 5) if args[i - 1] == "-n" else a for i, a in enumerate(args)]
            over = [str(run.build / "apps/roci/roci"), "run", "--"] if rival == "ucx_rc_over_us" else []  # UCX searches for devices in /sys, which `roci run` provides
            command = [*over, "ucx_perftest", "-p", "18998", *args]
            try:
                keep, run.env = run.env, env
                out = two_sided(command, command + ["127.0.0.1"], run, timeout=30, alone=rival != "ucx_rc_over_us", pinned=not few,
                                server_env=dict(env, UCX_NET_DEVICES="roci0:1") if rival == "ucx_rc_over_us" else None)
            except (OSError, subprocess.TimeoutExpired) as e:
                run.miss(f"{rival} {name}", "does not come up: " + type(e).__name__)
                break
            finally:
                run.env = keep
            final = [line.split() for line in out.splitlines() if line.startswith("Final:")]
            if not final:
                run.miss(f"{rival} {name}", "no figure")
                break
            # The fields after "Final:" are: iterations; latency in us (percentile, average, overall); MB/s (average,
            # overall); messages/s (average, overall).
            v = [float(x) for x in final[0][2:]]
            if what == "msg":
                run.put(f"{rival}.{name}", v[-1] / 1e6, "Mmsg/s")
            elif what == "lat":
                run.put(f"{rival}.{name}", v[2] * 1000, "ns")
            else:
                run.put(f"{rival}.{name}", v[4] * 1048576 / 1e9, "GB/s")


PARTS = {"floors": floors, "transport": transport, "two_lcores": two_lcores, "sharing": sharing, "instructions": instructions, "stages": stages.measure, "verbs": verbs, "control": control, "idle": idle, "perftest": perftest, "ucx": ucx}
NEED_ROCID = {"verbs", "control", "idle", "perftest", "ucx"}


def start_rocid(run, folder):
    socket = f"{folder}/rocid.sock"
    pinned = ["--set", f"engine.cpus={run.engine_cpu[-1]}"] if run.engine_cpu else []
    run.rocid = subprocess.Popen(run.engine_cpu[:3] + [str(run.build / "apps/rocid/rocid"), "--loopback", "--socket", socket, *AS_ON_A_NETWORK, *pinned],
                                 stdout=open(f"{folder}/log", "w"), stderr=subprocess.STDOUT)
    for _ in range(100):
        if Path(socket).exists():
            break
        if run.rocid.poll() is not None:
            sys.exit("rocid does not start: " + Path(f"{folder}/log").read_text()[-500:])
        time.sleep(0.1)
    run.env.update(ROCI_SOCKET=socket, LD_LIBRARY_PATH=":".join(str(run.build / "verbs_api" / lib) for lib in ("libibverbs", "librdmacm")), ROCI_BENCH_ROCID_PID=str(run.rocid.pid))


# ---- evaluation -----------------------------------------------------------------------------------------------------


def compare(ratios, baseline, tolerance):
    """Prints the ratios that differ from the stored ratios by the tolerance or more. Returns True if none of them has
    become worse."""
    good = True
    for row in ratios:
        old = baseline.get(row["key"])
        if old is None or row["ratio"] is None:
            continue
        change = row["ratio"] / old - 1
        if abs(change) < tolerance:
            continue
        worse = change < 0
        good = good and not worse
        print(f"  {'fell' if worse else 'rose'} {100 * change:+.0f} %: {row['what']} (ratio {old:.3g} -> {row['ratio']:.3g})")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="take less than one minute; the figures are less exact")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="parts to measure")
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.html; default: the build folder")
    parser.add_argument("--tolerance", type=float, default=0.25, help="smallest relative change of a ratio that is reported (default: 0.25); a smaller change is noise")
    parser.add_argument("--realtime", action="store_true", help="give the measured programs priority over all other programs, for a busy machine (needs root)")
    parser.add_argument("--save-baseline", action="store_true", help="store this run's ratios in baseline.json")
    args = parser.parse_args()

    run = Run(args.quick, args.build.resolve(), args.realtime)
    run.rocid = None
    started = time.time()
    parts = [p for p in PARTS if (not args.only or p in args.only) and not (args.quick and p == "instructions" and not args.only)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            if NEED_ROCID & set(parts):
                start_rocid(run, folder)
            for part in parts:
                print(f"measuring: {part}", flush=True)
                PARTS[part](run)
        finally:
            if run.rocid is not None:
                run.rocid.send_signal(signal.SIGTERM)
                run.rocid.wait(timeout=10)

    reach.add_cycles(run.figures)
    release = HERE / "release.json"
    rows = reach.rows(run.figures, json.loads(release.read_text()))
    out = args.out or run.build
    result = {"date": time.strftime("%Y-%m-%d %H:%M"), "load": os.getloadavg()[0], "cpus": os.cpu_count(), "seconds": round(time.time() - started),
              "quick": args.quick, "figures": run.figures, "reach": rows, "missing": run.missing}
    (out / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "bench.html").write_text(page.render(result))
    print(reach.table(run.figures, rows))
    print(f"{result['seconds']} s, load average {result['load']:.1f} on {result['cpus']} CPUs; {out}/bench.json, {out}/bench.html")
    stored = HERE / "baseline.json"
    good = not run.missing
    if args.save_baseline:
        stored.write_text(json.dumps({r["key"]: float(f"{r['ratio']:.4g}") for r in rows if r["ratio"] is not None}, indent=1) + "\n")
    elif stored.exists():
        print("against the stored ratios:")
        good = compare(rows, json.loads(stored.read_text()), args.tolerance) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
