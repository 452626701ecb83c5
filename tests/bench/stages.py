"""Measures the cycles per message and stage, which the engine counts (stack/base/stage.hpp), and the total without
counting."""
import json
import subprocess

COUNTED, PLAIN = "tests/bench/transport_stages", "tests/bench/transport_bench"


def ask(run, program):
    """Returns the lines that the program prints, by case: {case: {figure: line}}."""
    command = run.program_cpu + [str(run.build / program), "--net-ring", "--stages"] + (["--quick"] if run.quick else [])
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    by_case = {}
    for line in map(json.loads, out.splitlines()):
        by_case.setdefault(".".join(line["name"].split(".")[1:-1]), {})[line.pop("name")] = line
    return by_case


def cycles(case, figures):
    """Returns the number by which the tries of a case are compared."""
    return sum(figures[name]["value"] for name in (f"stages.{case}.sum", f"stages.{case}.plain") if name in figures)


def measure(run):
    best = {}
    for _ in range(2 if run.quick else 3):
        for program in (COUNTED, PLAIN):  # in turn, so that the load of other programs affects both programs
            try:
                tries = ask(run, program)
            except (OSError, subprocess.SubprocessError) as e:
                return run.miss("stages", (getattr(e, "stderr", None) or str(e)).strip()[-200:])
            for case, figures in tries.items():
                if (program, case) not in best or cycles(case, figures) < cycles(case, best[program, case]):
                    best[program, case] = figures
    for figures in best.values():
        run.figures.update(figures)
    print(table(run.figures))


class Case:
    """The figures of one case. If a message has several packets, they are per packet. Otherwise they are per
    message."""

    def __init__(self, name, figures):
        def of(what):
            return figures[f"stages.{name}.{what}"]["value"]
        packets = of("packets")
        self.name, self.unit = name, "packet" if packets > 1 else "message"
        self.stages = {n.rsplit(".", 1)[1]: (f["what"], f["value"] / packets) for n, f in figures.items() if n.startswith(f"stage.{name}.")}
        self.sum, self.plain, self.switches, self.switch = of("sum") / packets, of("plain") / packets, of("switches") / packets, of("switch")


def cases(figures):
    return [Case(n[len("stages."):-len(".sum")], figures) for n in figures if n.startswith("stages.") and n.endswith(".sum")]


def table(figures):
    all_cases = cases(figures)
    row = lambda text, values: f"{text:<58}" + "".join(f"{v:>19}" for v in values)
    lines = ["", row("cycles of the time stamp counter", [c.name for c in all_cases]), row("", ["a " + c.unit for c in all_cases])]
    lines += [row(f"{stage:<11}{what}", [f"{c.stages[stage][1]:.1f}" for c in all_cases]) for stage, (what, _) in all_cases[0].stages.items()]
    lines += [row("sum", [f"{c.sum:.0f}" for c in all_cases]), row("the same, uncounted", [f"{c.plain:.0f}" for c in all_cases]),
              row("what counting changes beyond what is subtracted", [f"{100 * (c.sum / c.plain - 1):+.0f} %" for c in all_cases]),
              row("switches that were subtracted", [f"{c.switches:.1f} of {c.switch:.0f}" for c in all_cases])]
    return "\n".join(lines)
