"""Writes docs/peers.md from the results of a run."""
import re

HEAD = """# Peers

This page shows test results of Rocinante with other implementations of RoCEv2. `tests/interop/rxe/run.py --full --write` generates the page. CI
runs the quick subset of the same cases (`./dev test`).

## The Linux kernel's Soft-RoCE (rdma_rxe), Linux {kernel}

The peer is a QEMU guest with Debian's stock kernel, connected to a TAP in a network namespace. rocid shares the TAP's kernel end through a packet
socket (`port = "af_packet"`), so rocid's GIDs, neighbours and routes are those of the namespace. Both ends run Debian's programs and
`tests/interop/rxe/ops.cpp`, which checks every byte. `ops.cpp` runs each operation in both directions: Rocinante as requester and as responder.

- "they" is Soft-RoCE, "we" is Rocinante.
- "they serve" or "we serve" names the side that waits for the connection.
- "they have" or "we have" names the side that drops, delays or changes frames: the guest by tc netem, or rocid by its fault wrapper.
- "VLAN": the guest's kernel has a VLAN interface (802.1Q). rocid itself tags its frames.
- "vhost_user": the guest's virtio NIC is connected to rocid's vhost_user port.

QEMU emulates the guest's processor in software, so times and figures show the speed of the guest, not that of Rocinante.

| what | IP | result | seconds | figure |
| --- | --- | --- | ---: | --- |
"""

TAIL = """
`ib_send_bw -R`: perftest's client requests its second connection as soon as the first one is closed. If a slow server does not listen again by then, the server
refuses the request (REJ 8, like the kernel), and the client fails. If the emulated side serves, the test therefore delays our frames
by half a second. rping connects only once and needs no delay. Over IPv6 only rping runs, because this version of perftest supports `-R` over IPv4 only.

## Where Soft-RoCE differs

- A SEND that is longer than the receive: the specification requires NAK "invalid request" and a local length error (IBA 9.7.5.2.4). Linux 6.1 sends
  NAK "remote operational error" and reports IBV_WC_LOC_QP_OP_ERR. Rocinante as responder follows the specification. Rocinante as requester reports the status of the NAK.
- MigReq is 0 in Soft-RoCE's frames (docs/wire.md). Soft-RoCE accepts our frames with MigReq 1.
- Soft-RoCE does not restart its retransmission timer for each request, so it repeats requests that were not lost. Rocinante answers the duplicates.
- Soft-RoCE accepts 128 outstanding READs and atomics per QP, Rocinante 16. perftest assumes that the peer has the limit of the local device, so
  READs and atomics need `-o 16`, as between different hardware NICs.
- In Soft-RoCE `retry_cnt` 7 means infinite retries: only lower values end in "retry exceeded". In Rocinante 7 means seven retries.
- If a QP with a posted receive goes to ERR, Soft-RoCE hangs together with the guest, also between two QPs of its own.
- Under loss Soft-RoCE hangs now and then. A failed case with faults is therefore repeated once in a new guest. The table marks such cases with "the second time" or "at try 2".

ICMP "unreachable" messages have no effect: a connection fails only after its retries. rocid counts these messages (`icmp_unreachable` in `roci status`).
"""


def figure(output):
    """Returns one number of perftest's output: the average bandwidth in MB/s, or the typical latency in
    microseconds."""
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
