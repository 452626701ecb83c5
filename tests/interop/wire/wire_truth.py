#!/usr/bin/env python3
"""Compares the frames of rocid with those of the Linux kernel's Soft-RoCE, and checks them with Wireshark's dissector and an independent ICRC.

    tests/interop/wire/wire_truth.py [--write] [--keep FILE]

--write generates docs/wire.md. Without it, the test fails if the page differs from the capture. The last line is `N passed, N failed`.
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

TEXT = '''# Comparison of frames with Soft-RoCE

`tests/interop/wire/wire_truth.py --write` generates this page. `./dev test` fails if the page differs from the frames that rocid sends. The operations below
run over a rocid that captures its frames. The test checks three properties of every frame:

- Wireshark's dissector reports no error.
- The ICRC equals an independent computation (Python's zlib, with the masking of RoCEv2 annex A17.3.3).
- The header fields equal those of Soft-RoCE of the Linux 6.1 kernel for the same operations (`tests/data/rxe-excerpt.pcap`). If a field differs,
  this page gives the reason.

Operations: {operations}.

## Header fields of RC packets

| field | Soft-RoCE | Rocinante | verdict |
| --- | --- | --- | --- |
{fields}

These fields are not compared, because they differ per connection: QP numbers, PSNs, R_Keys, addresses, the IPv4 identification and the UDP source port within its
range. In both captures a QP uses one UDP source port, so a switch that hashes on it keeps the QP's packets in order.

## Frames by opcode

Equal frame lengths for the same operations mean equal segmentation, header layout and padding.

| code | opcode | frame lengths in both | AckReq Soft-RoCE | AckReq Rocinante |
| ---: | --- | --- | --- | --- |
{opcodes}

AckReq is the ACK request bit of the BTH. Soft-RoCE sets the bit in the last packet of a message. Rocinante may also set it within a long
message, to get ACKs before its window is full. "only in the reference" marks opcodes that only the capture of Soft-RoCE contains.

## Loss reports

Rocinante also sends packets that no other implementation knows ([docs/loss.md](loss.md)). They occur only after a loss, so none of the operations above has one. A requester that
finds a loss sends at most three inquiries per connection. A Rocinante answers each inquiry with a report. It sends further reports only while packets are missing.

| bytes | content |
| --- | --- |
| BTH (12) | opcode 0xc0, of the range for manufacturers (IBA 9.2.1). TVer 15. P_Key 0xffff. The QP number of the peer. A PSN 2^22 before the expected one. No ACK request |
| 0–3 | "Roci" |
| 4 | version of this layout: 1 |
| 5 | 0: inquiry, 1: report. All fields below are 0 or have no meaning in an inquiry |
| 6–7 | number of the report |
| 8–9 | number of PSNs that the report covers, 0 to 256 |
| 10–11 | number of later packets that a late packet may have behind it |
| 12–15 | expected PSN of the responder: the first missing packet |
| 16–19 | newest PSN that has arrived |
| 20–51 | bitmap: bit i is 1 if packet (expected PSN + i) has arrived. Bit 0 is the lowest bit of the first byte |
| 52–55 | ICRC |

A receiver drops such a packet silently for each of two reasons: its opcode belongs to no transport service (IBA 9.2.1), and it does not support the version (IBA 9.2.2). Soft-RoCE needs the
second reason. It masks the opcode of a packet for an RC QP with 0 (`check_type_state` in `rxe_recv.c`), so each opcode passes. A packet with an unknown opcode is then no request, and
the completer takes it for a response, which might complete a work request. But `hdr_check` drops each packet whose TVer is not 0 before that. The PSN is a third protection: a completer takes it for
an old duplicate. Wireshark shows an unknown opcode.
'''


def take_capture(path, folder):
    """Runs the operations with a rocid that writes a capture to `path`."""
    config = pathlib.Path(folder) / 'capture.toml'
    config.write_text(f'[capture]\nfile = "{path}"\n')
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


def page_of(fields, opcodes):
    operations = '; '.join(f'`{p.program} {p.args}`' + (' over IPv6' if p.gid == 'ipv6' else '') for p in OPERATIONS)
    return TEXT.format(operations=operations, fields='\n'.join(fields), opcodes='\n'.join(opcodes))


def check_page(tally, page, write):
    if write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    stale = not PAGE.exists() or PAGE.read_text() != page
    tally.check('docs/wire.md says what the capture shows', ['it does not: run tests/interop/wire/wire_truth.py --write, and read the change'] if stale else [])


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
    check_page(tally, page_of(fields, opcodes), write)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='generate docs/wire.md')
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
