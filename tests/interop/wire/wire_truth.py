#!/usr/bin/env python3
"""Compares the frames of rocid with those of the Linux kernel's Soft-RoCE, and checks them with Wireshark's dissector and an independent ICRC.

    tests/interop/wire/wire_truth.py [--write] [--keep FILE]

docs/wire.md contains generated blocks between the lines `<!-- begin NAME -->` and `<!-- end NAME -->`. --write replaces the blocks. Without it, the test fails if
a block differs from the capture. The last line is `N passed, N failed`.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPO / 'tests/conformance'))

import lab  # noqa: E402
from pairs import Pair, run_pair  # noqa: E402

import capture  # noqa: E402
import compare  # noqa: E402
import dissect  # noqa: E402

REFERENCE = REPO / 'tests/data/rxe-excerpt.pcap'
PAGE = REPO / 'docs/wire.md'

# The operations of the reference capture. The message sizes and path MTUs are the same.
OPERATIONS = [
    Pair('ibv_rc_pingpong', '-n 4 -s 64 -m 1024'),
    Pair('ibv_rc_pingpong', '-n 3 -s 5000 -m 1024'),
    Pair('ibv_rc_pingpong', '-n 2 -s 1000 -m 256'),
    Pair('ibv_rc_pingpong', '-n 3 -s 2000 -m 1024', gid='ipv6'),
    Pair('ib_write_bw', '-m 1024 -s 64 -n 5 -t 5'),
    Pair('ib_write_bw', '-m 1024 -s 8200 -n 5 -t 5'),
    Pair('ib_write_bw', '-m 4096 -s 20000 -n 5 -t 5'),
    Pair('ib_read_bw', '-m 1024 -s 64 -n 5 -t 5'),
    Pair('ib_read_bw', '-m 1024 -s 8200 -n 5 -t 5'),
    Pair('ib_send_bw', '-m 1024 -s 64 -n 40 -r 2 -t 20'),
]

def take_capture(path, folder):
    """Runs the operations with a rocid that writes a capture to `path`."""
    config = pathlib.Path(folder) / 'capture.toml'
    config.write_text(f'[engine]\nloopback_icrc = "always"\n[capture]\nfile = "{path}"\n')
    with lab.Rocid(config) as rocid:
        gids = {device: lab.gid_indexes(rocid, device) for device in ('roci0', 'roci1')}
        for pair in OPERATIONS:
            run_pair(rocid, pair, gids, quick=False)


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, complaints):
        """Counts a check. The check passes if there are no complaints."""
        complaints = list(complaints)
        if complaints:
            self.failed += 1
            print(f'FAIL {name}')
            print('\n'.join(f'    {c}' for c in complaints[:20]))
        else:
            self.passed += 1
            print(f'PASS {name}')


def check_frames(tally, who, path):
    right, wrong = capture.count_icrcs(path)
    print(f'{who}: {right + wrong} RoCEv2 frames')
    tally.check(f'{who}: every ICRC is right', [f'{wrong} of {right + wrong} are wrong'] if wrong or not right else [])
    tally.check(f'{who}: no malformed frame', dissect.malformed(path))


def blocks_of(fields, opcodes):
    """Returns the generated blocks of docs/wire.md: name -> lines."""
    operations = '; '.join(f'`{p.program} {p.args}`' + (' over IPv6' if p.gid == 'ipv6' else '') for p in OPERATIONS)
    return {
        'operations': [f'Operations: {operations}.'],
        'fields': ['| field | Soft-RoCE | Rocinante | verdict |', '| --- | --- | --- | --- |', *fields],
        'opcodes': ['| code | opcode | frame lengths in both | AckReq Soft-RoCE | AckReq Rocinante |', '| ---: | --- | --- | --- | --- |', *opcodes],
    }


def with_block(page, name, lines):
    """Returns the page with the content of one block replaced."""
    begin, end = f'<!-- begin {name} -->\n', f'<!-- end {name} -->\n'
    head, found_begin, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f'{PAGE.relative_to(REPO)} has no block {name}: it needs the lines {begin.strip()} and {end.strip()}')
    return head + begin + '\n' + '\n'.join(lines) + '\n\n' + end + tail


def check_page(tally, blocks, write):
    page = PAGE.read_text()
    stale = []
    for name, lines in blocks.items():
        written = with_block(page, name, lines)
        if written != page and not write:
            stale.append(f'the block {name} differs from the capture: run tests/interop/wire/wire_truth.py --write, and read the change')
        page = written
    if write:
        PAGE.write_text(page)
    tally.check('docs/wire.md says what the capture shows', stale)


def judge(tally, path, write):
    check_frames(tally, 'Soft-RoCE (the reference)', REFERENCE)  # the reference must pass, otherwise the checks are wrong
    check_frames(tally, 'Rocinante', path)
    tally.check('Rocinante: nothing but RoCEv2 on the wire', dissect.not_roce(path))
    reference, ours = dissect.packets(REFERENCE), compare.first_copies(dissect.packets(path))
    fields, field_complaints = compare.fields_table(reference, ours)
    opcodes, opcode_complaints = compare.opcodes_table(reference, ours)
    tally.check('header fields are those of Soft-RoCE, or differ for a known reason', field_complaints)
    tally.check('the same operations make the same frames', opcode_complaints)
    tally.check('a QP keeps its UDP source port', compare.flow_complaints(ours))
    check_page(tally, blocks_of(fields, opcodes), write)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='write the generated blocks of docs/wire.md')
    parser.add_argument('--keep', metavar='FILE', help='store the capture in FILE')
    parser.add_argument('--capture', metavar='FILE', help='check the capture in FILE instead of making a capture')
    options = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix='roci-wire-') as folder:
        path = pathlib.Path(options.capture or pathlib.Path(folder) / 'wire.pcapng')
        try:
            if not options.capture:
                take_capture(path, folder)
            judge(tally, path, options.write)
        except (lab.Failure, OSError, ValueError) as failure:
            why = str(failure)
            tally.check('wire truth could be judged', [why])
        if options.keep and path.exists():
            shutil.copy(path, options.keep)
    print(f'{tally.passed} passed, {tally.failed} failed')
    return 1 if tally.failed else 0


if __name__ == '__main__':
    sys.exit(main())
