"""docs/peers.md, from a run."""
import re

HEAD = """# Peers

What Rocinante does against RoCEv2 implementations that are not ours. Made by `tests/interop/rxe/run.py --full --write`; CI runs the quick
subset of the same cases (`./dev test`).

## The Linux kernel's Soft-RoCE (rdma_rxe), Linux {kernel}

The peer is a QEMU guest with Debian's stock kernel, on a TAP in a network namespace; rocid shares the TAP's kernel end through a packet
socket (`port = "af_packet"`), so its GIDs, neighbours and routes are the kernel's. Programs are Debian's own at both ends, and
`tests/interop/rxe/ops.cpp`, which looks at every byte, both ways: each of its rows has us as requester and as responder. "They serve" and "we
serve" say who waits for the connection. Losses are tc netem's in the guest ("they have") and our own fault wrapper ("we have").
"VLAN": the guest's kernel has a VLAN interface (802.1Q), rocid tags by itself. "vhost_user": the guest's virtio NIC is at rocid's vhost_user port.
QEMU emulates the guest's processor by software, so times and figures say what the guest can do, not what we can.

| what | IP | result | seconds | figure |
| --- | --- | --- | ---: | --- |
"""

TAIL = """
`ib_send_bw -R`: perftest's client asks for its second connection as soon as the first is over. A server that is slow, or loses frames, may not listen
again by then; it refuses (REJ 8, as the kernel must, and as we do), and the client does not survive that. So what we send is half a second late where
the emulated side serves. rping, which connects once, needs nothing of the kind. Over IPv6 there is rping only: this perftest's `-R` knows IPv4 alone.

## What Soft-RoCE does its own way

- A SEND that is longer than the receive: the specification has NAK "invalid request" and a local length error (IBA 9.7.5.2.4); Linux 6.1 sends NAK
  "remote operational error" and reports IBV_WC_LOC_QP_OP_ERR. We report what it says as requester, and answer as specified.
- It leaves MigReq 0 (docs/wire.md), and takes ours with 1.
- Its retransmission timer is not restarted a request, so that it repeats requests that were not lost: we answer duplicates.
- It answers 128 READs and atomics of a QP at once, we ask 16 at most: perftest, which asks its own device for what the other one can, needs
  `-o 16` for reads and atomics, as between hardware NICs that differ.
- `retry_cnt` 7 means for ever to it: only lower values end in "retry exceeded" there. To us it means seven.
- A QP that goes to ERR with a receive posted hangs it, guest and all, also between two of its own.
- It hangs by itself under loss now and then: a case with faults that fails is run once more, in a fresh guest, and said so.

ICMP "unreachable" changes nothing: a connection ends by its own retries only, whatever somebody on the path says. Such messages are counted
(`icmp_unreachable` in `roci status`).
"""


def figure(output):
    """The average of a perftest table: bandwidth in MB/s or latency in microseconds."""
    header = columns = None
    for line in output.splitlines():
        if '#bytes' in line:
            header = [h.strip() for h in re.split(r'\s{2,}', line.strip())]
            columns = re.findall(r'BW average\[\S+\]|t_typical\[\S+\]', line)
        elif header and columns and re.match(r'\s*\d+\s+\d+\s', line):
            values = line.split()
            if 'BW' in columns[0] and len(values) >= 4:
                return f'{float(values[3]):.1f} MB/s'
            return f'{float(values[4]):.0f} µs' if len(values) > 4 else ''
    return ''


def write(path, rows, kernel):
    lines = [f"| {case.name.replace('|', '/')} | {case.family[-1]} | {verdict} | {seconds:.0f} | {figure(said)} |" for case, verdict, seconds, said in rows]
    passed = sum(verdict.startswith('passed') for _, verdict, _, _ in rows)
    path.write_text(HEAD.format(kernel=kernel) + '\n'.join(lines) + f'\n\n{passed} of {len(rows)} passed.\n' + TAIL)
