"""The goals of the benchmark. A goal has a figure, an anchor, and the lowest (or highest) permitted ratio of the
figure to the anchor. The anchor is a figure of the same run, a figure of the stored release, or a fixed number."""


def _least(figure, anchor, goal, text, why, scale=1.0):
    return {"figure": figure, "anchor": anchor, "goal": goal, "what": text, "why": why, "scale": scale, "more_is_better": True}


def _most(figure, anchor, goal, text, why, scale=1.0):
    return dict(_least(figure, anchor, goal, text, why, scale), more_is_better=False)


def _fewer_cycles(figure, text):
    """Returns a goal for the cycles per message or KiB. The anchor is the stored release (release.json). The cycles
    of two runs can be compared, because machines of one kind need about the same number of cycles at any clock
    rate."""
    return _most(figure, "release", 1.1, text + ", cycles against the stored release's", "no release is slower than the one before")


# The table of goals. If the anchor of a goal is a number, this number is a fixed goal in the unit of the figure.
GOALS = [
    _fewer_cycles("transport.write.64B.16qp", "64 B WRITE, 16 QPs, batches: engine alone"),
    _fewer_cycles("transport.send.64B.16qp", "64 B SEND, 16 QPs, batches: engine alone"),
    _fewer_cycles("transport.write.64KiB", "WRITE 64 KiB: engine alone"),
    _least("verbs.rate.write.64B.16qp", "ucx_posix.rate.64B", 1, "64 B WRITE, 16 QPs, postlists: message rate against UCX posix", "one engine does both ends"),
    _least("verbs.rate.send.64B.16qp", "ucx_posix.rate.64B", 1, "64 B SEND, 16 QPs, postlists: message rate against UCX posix", "one engine does both ends"),
    _least("verbs.rate.write.64B.1qp.no_postlist", "ucx_posix.rate.64B", 1, "64 B WRITE, 1 QP, no postlist: message rate against UCX posix", "one engine does both ends"),
    _least("perftest.write_bw.64B.no_postlist", "ucx_posix.rate.64B", 1, "64 B WRITE, 1 QP: ib_write_bw against UCX posix", "one engine does both ends"),
    _most("verbs.half_round_trip.send.64B.p50", "ucx_posix.half_round_trip.64B", 2.5, "half round trip, 64 B SEND, p50, against UCX posix",
          "two ring hops are the floor"),
    _most("verbs.half_round_trip.send.64B.p50", "floor.cross_core_round_trip", 2, "half round trip, 64 B SEND, p50, against a cross-core one",
          "two ring hops are the floor"),
    _least("perftest.write_bw.64KiB", "floor.copy_crc_both_sides.64KiB", 0.8, "ib_write_bw 64 KiB against copy + CRC on both sides", "one copy a side"),
    _least("perftest.write_bw.1MiB", "floor.copy_crc_both_sides.1MiB", 0.8, "ib_write_bw 1 MiB against copy + CRC on both sides", "one copy a side"),
    _least("verbs.bandwidth.write.64KiB", "floor.copy_crc_both_sides.64KiB", 0.8, "native WRITE 64 KiB against copy + CRC on both sides", "one copy a side"),
    _least("verbs.bandwidth.write.1MiB", "floor.copy_crc_both_sides.1MiB", 0.8, "native WRITE 1 MiB against copy + CRC on both sides", "one copy a side"),
    _least("verbs.rate.write.64B.16qp", "ucx_tcp.rate.64B", 10, "message rate against UCX TCP", "what one falls back to"),
    _least("verbs.bandwidth.write.64KiB", "ucx_tcp.bandwidth.64KiB", 4, "bandwidth at 64 KiB against UCX TCP", "what one falls back to"),
    _least("verbs.bandwidth.write.1MiB", "ucx_tcp.bandwidth.1MiB", 4, "bandwidth at 1 MiB against UCX TCP", "what one falls back to"),
    _most("verbs.half_round_trip.send.64B.p50", "ucx_tcp.half_round_trip.64B", 0.2, "half round trip against UCX TCP", "what one falls back to"),
    _least("transport.write.64B.batch1.10000qp", "transport.write.64B.batch1.16qp", 0.8, "10,000 QPs against 16, one message a visit: engine alone",
           "hardware's known cliff"),
    _least("transport.write.64B.batch32.10000qp", "transport.write.64B.16qp", 0.8, "10,000 QPs against 16, batches of 32: engine alone",
           "hardware's known cliff"),
    _least("verbs.rate.write.64B.batch1.10000qp", "verbs.rate.write.64B.batch1.16qp", 0.8, "10,000 QPs against 16, one message a visit: through rocid",
           "hardware's known cliff"),
    _least("verbs.rate.write.64B.batch32.10000qp", "verbs.rate.write.64B.batch32.16qp", 0.8, "10,000 QPs against 16, batches of 32: through rocid",
           "hardware's known cliff"),
    _most("transport.bytes_a_qp", 1024.0, 1, "engine memory a connected QP", "20,000 QPs fit in a cache"),
    _least("transport.two_lcores", "transport.one_lcore", 1.8, "two engine lcores against one", "share nothing"),
    _most("sharing.wrong", 0.001, 1, "moves a message of lines falsely shared, or shared by engines", "no false sharing; share nothing"),
    _most("verbs.reg_mr.4KiB.first", 30.0, 1, "ibv_reg_mr 4 KiB", "measured possible"),
    _least("verbs.reg_mr.large.rate", 1.0, 1, "ibv_reg_mr 1 GiB (quick: 128 MiB)", "measured possible"),
    _most("verbs.reg_mr.4KiB.second", 10.0, 1, "second ibv_reg_mr of the same 4 KiB", "measured possible"),
    _least("verbs.create_to_rts", 20000.0, 1, "QP create to RTS", "connection storms"),
    _most("rocid.idle_cpu", 2.0, 1, "CPU of an idle rocid", "laptop and CI manners"),
    _most("verbs.write_completes.engine_asleep.p50", "floor.wake.p50", 2, "WRITE to a sleeping engine, p50, against waking a thread",
          "what the kernel takes to wake one"),
    _most("verbs.write_completes.engine_asleep.p50", 50000.0, 1, "WRITE to a sleeping engine, p50", "laptop and CI manners"),
]


PER_CYCLES = {"Mmsg/s": (1e6, "cycles/msg"), "GB/s": (1e9 / 1024, "cycles/KiB")}


def add_cycles(figures):
    """Adds the number of cycles of the time stamp counter per message or KiB to each figure that is a rate."""
    counter = figures.get("floor.counter")
    if counter is None:
        return
    for f in figures.values():
        if f["unit"] in PER_CYCLES and f["value"]:
            scale, unit = PER_CYCLES[f["unit"]]
            f["cycles"], f["cycles_unit"] = counter["value"] * 1e6 / (f["value"] * scale), unit


def in_cycles(figure):
    return {"value": figure["cycles"], "unit": figure["cycles_unit"]} if figure and "cycles" in figure else None


def anchor_of(goal, mine, figures, release):
    if isinstance(goal["anchor"], float):
        return {"value": goal["anchor"], "unit": mine["unit"] if mine else ""}
    if goal["anchor"] == "release":
        return {"value": release[goal["figure"]]} if goal["figure"] in release else None
    return figures.get(goal["anchor"])


def rows(figures, release):
    out = []
    for g in GOALS:
        fixed = isinstance(g["anchor"], float)
        mine = figures.get(g["figure"])
        if g["anchor"] == "release":
            mine = in_cycles(mine)
        anchor = anchor_of(g, mine, figures, release)
        ratio = mine["value"] / anchor["value"] if mine and anchor and anchor["value"] else None
        met = ratio is not None and (ratio >= g["goal"] if g["more_is_better"] else ratio <= g["goal"])
        # The score is used to compare runs. A higher score is better.
        score = None if ratio is None else ratio if g["more_is_better"] else 1 / max(ratio, 1e-9)
        out.append({"key": g["figure"] + " / " + ("goal" if fixed else g["anchor"]), "what": g["what"], "why": g["why"], "value": mine and mine["value"],
                    "unit": mine and mine["unit"], "anchor": "goal" if fixed else g["anchor"], "anchor_value": anchor and anchor["value"],
                    "measured_ratio": ratio, "goal": g["goal"], "more_is_better": g["more_is_better"], "met": met, "ratio": score})
    return out


def number(v):
    if v is None:
        return "-"
    return f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.3g}"


def cycles_text(figure):
    return f"{number(figure['cycles']):>10} {figure['cycles_unit']}" if "cycles" in figure else ""


def has_own_table(name):
    return name.startswith(("stage.", "stages."))


def table(figures, goal_rows):
    lines = ["", f"{'figure':<52}{'value':>14} {'unit':<12}{'cycles':>10}"]
    lines += [f"{name:<52}{number(f['value']):>14} {f['unit']:<12}{cycles_text(f)}".rstrip() for name, f in sorted(figures.items()) if not has_own_table(name)]
    lines += ["", f"{'goal':<78}{'value':>10} {'unit':<8}{'anchor':>10}{'ratio':>8}  {'wanted':<9}"]
    for r in goal_rows:
        if r["measured_ratio"] is None:
            lines.append(f"{r['what']:<78}{'not measured':>20}")
            continue
        wanted = ("≥ " if r["more_is_better"] else "≤ ") + f"{r['goal']:g}"
        lines.append(f"{r['what']:<78}{number(r['value']):>10} {r['unit']:<8}{number(r['anchor_value']):>10}{r['measured_ratio']:>8.2f}  {wanted:<7}"
                     f"{'reached' if r['met'] else 'NOT REACHED'}")
    return "\n".join(lines)
