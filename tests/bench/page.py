"""Writes the figures of the benchmark as one HTML page. The charts are inline SVG, and the page loads no other
files."""
import html

import reach
import stages

STYLE = """
:root{--ink:#1c2733;--soft:#5b6b7a;--line:#d9e0e6;--paper:#fbfaf7;--good:#2c7a5b;--bad:#b4532a;--bar:#3b6ea5;--anchor:#c9b458}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecef;--soft:#98a6b3;--line:#33404c;--paper:#161b21;--good:#5fbf95;--bad:#e08a5c;--bar:#6ea3dd;--anchor:#d8c46a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;margin:0}h2{font-size:1.15rem;margin:2.4rem 0 .4rem}p{color:var(--soft);margin:.2rem 0 .8rem}
svg text{font:13px system-ui,sans-serif;fill:var(--ink)}svg .soft{fill:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:.88rem}td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right}
td{white-space:nowrap}td:first-child,th:first-child{text-align:left;white-space:normal}.met{color:var(--good)}.not{color:var(--bad)}
"""


def bars(rows, unit, width=960, left=330):
    """Returns an SVG with one horizontal bar per row. A row is (label, value, colour variable)."""
    rows = [r for r in rows if r[1] is not None]
    if not rows:
        return "<p>Not measured in this run.</p>"
    most = max(r[1] for r in rows)
    parts = [f'<svg viewBox="0 0 {width} {len(rows) * 28 + 4}" width="100%" role="img">']
    for i, (label, value, colour) in enumerate(rows):
        y, w = i * 28 + 4, max(2, (width - left - 130) * value / most)
        parts.append(f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{html.escape(label)}</text>'
                     f'<rect x="{left}" y="{y}" width="{w:.1f}" height="20" rx="3" fill="var(--{colour})"/>'
                     f'<text x="{left + w + 8:.1f}" y="{y + 15}" class="soft">{reach.number(value)} {unit}</text>')
    return "".join(parts) + "</svg>"


def goals(rows, width=960, left=460):
    """Returns an SVG with one bar per goal. The scale is logarithmic, from a tenth of the goal to ten times the goal.
    A dashed line marks the goal."""
    import math
    rows = [r for r in rows if r["measured_ratio"] is not None]
    span = width - left - 90
    place = lambda v: left + span * (min(1, max(-1, math.log10(max(v, 1e-3)))) + 1) / 2
    parts = [f'<svg viewBox="0 0 {width} {len(rows) * 26 + 30}" width="100%" role="img">']
    for i, r in enumerate(rows):
        share = r["measured_ratio"] / r["goal"] if r["more_is_better"] else r["goal"] / max(r["measured_ratio"], 1e-9)
        y = i * 26 + 4
        parts.append(f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{html.escape(r["what"])}</text>'
                     f'<rect x="{left}" y="{y}" width="{max(2, place(share) - left):.1f}" height="18" rx="3" fill="var(--{"good" if r["met"] else "bad"})"/>'
                     f'<text x="{place(share) + 6:.1f}" y="{y + 14}" class="soft">{"> 100" if share > 100 else f"{share:.2g}"}×</text>')
    bottom = len(rows) * 26 + 6
    parts.append(f'<line x1="{place(1):.1f}" x2="{place(1):.1f}" y1="0" y2="{bottom}" stroke="var(--ink)" stroke-dasharray="4 3"/>'
                 f'<text x="{place(1):.1f}" y="{bottom + 16}" text-anchor="middle" class="soft">the goal</text></svg>')
    return "".join(parts)


def pick(figures, rows):
    return [(label, figures.get(name, {}).get("value"), colour) for label, name, colour in rows]


def percentiles(figures):
    rows = []
    for size in ("64B", "4096B"):
        for p in ("p50", "p99", "p999"):
            rows.append((f"Rocinante, {size}, {p}", f"verbs.half_round_trip.send.{size}.{p}", "bar"))
    return pick(figures, rows + [("UCX shared memory, 64 B", "ucx_posix.half_round_trip.64B", "anchor"), ("UCX TCP, 64 B", "ucx_tcp.half_round_trip.64B", "anchor"),
                                 ("a cache line there and back", "floor.cross_core_round_trip", "anchor")])


def colour(i):
    """Returns the colour of part `i` of a bar. Adjacent parts differ in hue (by the golden section) and in
    lightness."""
    return f"hsl({(i * 137.5) % 360:.0f} 52% {66 if i % 2 else 54}%)"


def stage_bars(figures, width=960, left=150, height=30):
    """Returns an SVG with one bar per case. The bar is divided into the stages of the case. If the name of a stage
    fits, it is in the bar. Every name is in a tooltip and in the table below."""
    all_cases = stages.cases(figures)
    if not all_cases:
        return "<p>Not measured in this run.</p>"
    span = width - left
    parts = [f'<svg viewBox="0 0 {width} {len(all_cases) * (height + 26)}" width="100%" role="img">']
    for row, case in enumerate(all_cases):
        y, x = row * (height + 26), left
        own = [(stage, what, max(0, cycles)) for stage, (what, cycles) in case.stages.items()]
        whole = sum(cycles for *_, cycles in own)
        parts.append(f'<text x="{left - 10}" y="{y + 20}" text-anchor="end">{html.escape(case.name)}</text>')
        for i, (stage, what, cycles) in enumerate(own):
            w = span * cycles / whole
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{height}" fill="{colour(i)}">'
                         f'<title>{stage}, {html.escape(what)}: {cycles:.1f} cycles a {case.unit}, {100 * cycles / whole:.0f} %</title></rect>')
            if w > 9 * len(stage):
                parts.append(f'<text x="{x + w / 2:.1f}" y="{y + 20}" text-anchor="middle" style="fill:#10161c;pointer-events:none">{stage}</text>')
            x += w
        parts.append(f'<text x="{left}" y="{y + height + 16}" class="soft">{case.sum:,.0f} cycles a {case.unit}; uncounted {case.plain:,.0f}</text>')
    return "".join(parts) + "</svg>" + stage_table(all_cases)


def stage_table(all_cases):
    rows = "".join(
        f'<tr><td><svg width="12" height="12"><rect width="12" height="12" rx="2" fill="{colour(i)}"/></svg> <b>{stage}</b>: {html.escape(what)}</td>'
        + "".join(f"<td>{c.stages[stage][1]:,.1f}</td>" for c in all_cases) + "</tr>" for i, (stage, (what, _)) in enumerate(all_cases[0].stages.items()))
    head = "".join(f"<th>{html.escape(c.name.replace('.', ' '))}, a {c.unit}</th>" for c in all_cases)
    last = "".join(f"<tr><td>{text}</td>" + "".join(f"<td>{value(c)}</td>" for c in all_cases) + "</tr>"
                   for text, value in (("sum", lambda c: f"{c.sum:,.0f}"), ("the same, uncounted", lambda c: f"{c.plain:,.0f}")))
    return f"<table><tr><th style='width:36%'>cycles of the time stamp counter</th>{head}</tr>{rows}{last}</table>"


def render(result):
    f = result["figures"]
    rate = pick(f, [("WRITE 64 B, 16 QPs", "verbs.rate.write.64B.16qp", "bar"), ("SEND 64 B, 16 QPs", "verbs.rate.send.64B.16qp", "bar"),
                    ("READ 64 B, 16 QPs", "verbs.rate.read.64B.16qp", "bar"), ("WRITE 64 B, 1 QP, no postlist", "verbs.rate.write.64B.1qp.no_postlist", "bar"),
                    ("ib_write_bw 64 B", "perftest.write_bw.64B.no_postlist", "bar"), ("the engine alone, WRITE", "transport.write.64B.16qp", "bar"),
                    ("the engine alone, 10,000 QPs", "transport.write.64B.batch32.10000qp", "bar"),
                    ("UCX shared memory", "ucx_posix.rate.64B", "anchor"), ("UCX TCP", "ucx_tcp.rate.64B", "anchor")])
    band = pick(f, [(f"WRITE {s}", f"verbs.bandwidth.write.{s}", "bar") for s in ("4KiB", "64KiB", "1MiB", "8MiB")] +
                [(f"READ {s}", f"verbs.bandwidth.read.{s}", "bar") for s in ("64KiB", "1MiB")] +
                [("copy + CRC, both sides, 64 KiB", "floor.copy_crc_both_sides.64KiB", "anchor"), ("copy + CRC, both sides, 1 MiB", "floor.copy_crc_both_sides.1MiB", "anchor"),
                 ("UCX shared memory, 1 MiB", "ucx_posix.bandwidth.1MiB", "anchor"), ("UCX TCP, 1 MiB", "ucx_tcp.bandwidth.1MiB", "anchor")])
    reached = [r for r in result["reach"] if r["measured_ratio"] is not None]
    listing = "".join(f"<tr><td>{html.escape(n)}</td><td>{reach.number(v['value'])}</td><td>{v['unit']}</td><td>{reach.cycles_text(v)}</td></tr>" for n, v in sorted(f.items()) if not reach.has_own_table(n))
    goal_rows = "".join(
        f"<tr><td>{html.escape(r['what'])}</td><td>{reach.number(r['value'])} {r['unit']}</td><td>{html.escape(r['anchor'])} {reach.number(r['anchor_value'])}</td>"
        f"<td>{r['measured_ratio']:.2f}</td><td>{'≥' if r['more_is_better'] else '≤'} {r['goal']:g}</td>"
        f"<td class='{'met' if r['met'] else 'not'}'>{'reached' if r['met'] else 'not reached'}</td></tr>" for r in reached)
    missing = "".join(f"<li>{html.escape(m)}</li>" for m in result["missing"])
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Rocinante: speed</title><style>{STYLE}</style>
<h1>How fast is Rocinante here?</h1>
<p>{result['date']}, {result['cpus']} CPUs, load average {result['load']:.1f}{', quick run' if result['quick'] else ''}. Blue: ours. Gold: anchors, measured in the same run.</p>
<h2>Goals: {sum(r['met'] for r in reached)} of {len(reached)} reached</h2><p>A logarithmic scale; at the dashed line a goal is met.</p>{goals(result['reach'])}
<h2>Messages a second, 64 bytes</h2><p>One engine lcore does both ends of every message.</p>{bars(rate, 'M/s')}
<h2>Bandwidth</h2><p>One engine lcore copies in and out and makes and checks every CRC.</p>{bars(band, 'GB/s')}
<h2>Where the time of a message goes</h2><p>The engine alone, both ends and the ACK: counted by stage in the engine, each without what is nested in it.</p>{stage_bars(f)}
<h2>Half a round trip</h2><p>SEND there and back, polling, one process drives both ends.</p>{bars(percentiles(f), 'ns')}
<h2>Goals in numbers</h2><table><tr><th>goal</th><th>value</th><th>held against</th><th>ratio</th><th>wanted</th><th></th></tr>{goal_rows}</table>
<h2>All figures</h2><table><tr><th>figure</th><th>value</th><th>unit</th><th>cycles</th></tr>{listing}</table>
{'<h2>Missing</h2><ul>' + missing + '</ul>' if missing else ''}</html>
"""
