#!/usr/bin/env python3
"""Draws the share of bandwidth that is kept under loss, as an SVG with one line per way to treat loss.

    tests/bench/loss_chart.py [--program ib_write_bw] LOSS.json [VS_RXE.json] >FILE.svg

LOSS.json is the output of `loss.py --json` (over rocid's loopback). VS_RXE.json is the output of `vs_rxe/run.py --parts 3`. The lines of Soft-RoCE and
TCP come from that file: over veth in an emulated guest. The horizontal distances between the losses are equal.
"""
import argparse
import json
import sys
from pathlib import Path

NAMES = {"reports": "Rocinante", "selective": "Rocinante without loss reports", "back-n": "Rocinante, go-back-N", "adaptive": "Rocinante, adaptive",
         "rxe": "Soft-RoCE (guest, veth)", "tcp": "TCP (guest, veth)"}
COLOURS = ("#2a78d6", "#1f9e77", "#d1495b", "#8a5fbf", "#c77d0a", "#6b7280")
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 760, 340, 60, 20, 220
STYLE = "text{font:13px system-ui,sans-serif;fill:#6b7280}.frame{stroke:#6b728066}"


def of_loss(text, program):
    """Returns {way: {share of lost frames: share of bandwidth}}."""
    found = {}
    for row in json.loads(text)["rows"]:
        if row["program"] == program:
            found[row["mode"]] = {drop: share for drop, share in row["shares"] if share is not None}
    return found


def of_guest(text):
    found = {"rxe": {}, "tcp": {}}
    for row in json.loads(text)["rows"]:
        if row["name"].startswith("3 loss "):
            for way, points in found.items():
                if row.get("kept", {}).get(way) is not None:
                    points[float(row["name"].split()[2]) / 100] = row["kept"][way]
    return {way: points for way, points in found.items() if points}


def chart(lines):
    drops = sorted({drop for points in lines.values() for drop in points})
    high = max(1, *(share for points in lines.values() for share in points.values()))
    bottom = HEIGHT - 40

    def x(drop):
        return LEFT + (WIDTH - LEFT - RIGHT) * drops.index(drop) / max(1, len(drops) - 1)

    def y(share):
        return bottom - (bottom - TOP) * share / high
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>Bandwidth kept under loss</title><style>{STYLE}</style>']
    for percent in range(0, 101, 25):
        parts.append(f'<line class="frame" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent / 100):.1f}" y2="{y(percent / 100):.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{y(percent / 100) + 4:.1f}" text-anchor="end">{percent} %</text>')
    parts += [f'<text x="{x(drop):.1f}" y="{bottom + 18}" text-anchor="middle">{100 * drop:g} %</text>' for drop in drops]
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">frames lost in each direction</text>')
    # The names are next to the ends of the lines, from bottom to top, at least one line of text apart.
    place = bottom + 18
    for way, points in sorted(lines.items(), key=lambda line: line[1][max(line[1])]):
        colour, last = COLOURS[list(lines).index(way) % len(COLOURS)], max(points)
        place = min(place - 18, y(points[last]) + 4)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x(d):.1f},{y(s):.1f}" for d, s in sorted(points.items()))}"/>')
        parts += [f'<circle cx="{x(d):.1f}" cy="{y(s):.1f}" r="3" fill="{colour}"><title>{NAMES[way]}: {100 * s:.0f} %</title></circle>' for d, s in points.items()]
        parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{place:.1f}" style="fill:{colour}">{NAMES[way]}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="ib_write_bw")
    parser.add_argument("loss", type=Path)
    parser.add_argument("guest", type=Path, nargs="?")
    args = parser.parse_args()
    lines = of_loss(args.loss.read_text(), args.program)
    if args.guest is not None:
        lines |= of_guest(args.guest.read_text())
    if not lines:
        return f"{args.loss} has no figures of {args.program}"
    sys.stdout.write(chart(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
