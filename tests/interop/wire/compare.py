"""Compares header fields of our frames with those of the Linux kernel's Soft-RoCE. Lists the fields that agree, the
fields that differ, and the reasons."""
import collections
import dataclasses
from typing import Callable

OPCODES = {0: 'SEND First', 1: 'SEND Middle', 2: 'SEND Last', 3: 'SEND Last with Immediate', 4: 'SEND Only', 5: 'SEND Only with Immediate',
           6: 'RDMA WRITE First', 7: 'RDMA WRITE Middle', 8: 'RDMA WRITE Last', 9: 'RDMA WRITE Last with Immediate', 10: 'RDMA WRITE Only',
           11: 'RDMA WRITE Only with Immediate', 12: 'RDMA READ Request', 13: 'RDMA READ Response First', 14: 'RDMA READ Response Middle',
           15: 'RDMA READ Response Last', 16: 'RDMA READ Response Only', 17: 'Acknowledge', 18: 'ATOMIC Acknowledge', 19: 'CmpSwap',
           20: 'FetchAdd', 22: 'SEND Last with Invalidate', 23: 'SEND Only with Invalidate'}
REQUESTS = range(0, 12)
ACKNOWLEDGE = 17


def opcode(packet):
    return int(packet['infiniband.bth.opcode'])


def is_rc(packet):
    return opcode(packet) in OPCODES


def first_copies(found):
    """Returns the packets without requests that were sent again. If the scheduler stops the engine for a few round trips, the engine
    may repeat a packet, and the repeated packet requests an acknowledgement."""
    seen, out = set(), []
    for packet in found:
        key = tuple(packet[f] for f in ('infiniband.bth.destqp', 'infiniband.bth.psn', 'infiniband.bth.opcode'))
        if key not in seen or opcode(packet) not in REQUESTS:
            out.append(packet)
        seen.add(key)
    return out


@dataclasses.dataclass(frozen=True)
class Field:
    """One row of the table. `value` is a function that returns the text to compare. '' means that a packet does not
    have the field."""
    name: str
    value: Callable
    why: str = ''  # reason why the values may differ; empty: the values must agree


def first_of(*names):
    return lambda p: next((p[n] for n in names if p[n]), '')


def ack_syndrome(packet):
    """Returns the kind of a positive acknowledgement. The AETH syndrome is 000ccccc, where c is the number of
    end-to-end credits (IBA 9.7.7.2.1.2)."""
    text = packet['infiniband.aeth.syndrome']
    if not text or int(text) >> 5:
        return ''
    return 'no credits (31)' if int(text) == 31 else 'credits'


def port_range(packet):
    """Returns the range to which the UDP source port belongs. Annex A17.3.2 requires the dynamic range. Linux uses
    0xC000 and above."""
    return 'dynamic (0xc000 and above)' if int(packet['udp.srcport']) >= 0xc000 else packet['udp.srcport']


def pad_rule(packet):
    """Returns whether the UDP length is a multiple of four. Padding makes it so (IBA 9.2.3)."""
    return 'multiple of 4' if int(packet['udp.length']) % 4 == 0 else 'not padded'


HOP_LIMIT = ("ours is the hop limit of the program's address vector (ibv_rc_pingpong 1, perftest 255); the kernel uses the hop limit of its route "
             'instead.')

FIELDS = (
    Field('IPv4 header length', first_of('ip.hdr_len')),
    Field('IPv4 type of service', first_of('ip.dsfield')),
    Field("IPv4 flags (2: don't fragment)", first_of('ip.flags')),
    Field('IPv4 time to live', first_of('ip.ttl'), HOP_LIMIT),
    Field('IPv6 traffic class', first_of('ipv6.tclass')),
    Field('IPv6 hop limit', first_of('ipv6.hlim'), HOP_LIMIT),
    Field('UDP destination port', first_of('udp.dstport')),
    Field('UDP source port', port_range),
    Field('UDP checksum', first_of('udp.checksum')),
    Field('UDP length', pad_rule),
    Field('BTH transport header version', first_of('infiniband.bth.tver')),
    Field('BTH P_Key', lambda p: f'{int(p["infiniband.bth.p_key"]):#06x}'),
    Field('BTH reserved bits', first_of('infiniband.bth.reserved7')),
    Field('BTH MigReq', first_of('infiniband.bth.m'),
          'ours follows IBA 9.7.2 and hardware NICs: 1 in the migrated state, which is permanent without automatic path migration. Soft-RoCE '
          'sends 0. Both ends accept both values.'),
    Field('BTH solicited event', first_of('infiniband.bth.se')),
    Field('AETH of an ACK', ack_syndrome,
          'Soft-RoCE has no end-to-end credits (31). Rocinante sends the number of posted receives, so that the sender waits when there are '
          'none (IBA 9.7.7.2.5).'),
)


def values(packets, field):
    return frozenset(v for v in (field.value(p) for p in packets if is_rc(p)) if v != '')


def shown(found):
    return ', '.join(sorted(found)) if found else 'none seen'


def fields_table(reference, ours):
    """Returns (markdown rows, complaints). A complaint describes a difference for which the table has no reason."""
    rows, complaints = [], []
    for field in FIELDS:
        theirs, mine = values(reference, field), values(ours, field)
        agree = bool(mine) and mine <= theirs
        if not agree and not field.why:
            complaints.append(f'{field.name}: ours {shown(mine)}, Soft-RoCE {shown(theirs)}')
        rows.append(f'| {field.name} | {shown(theirs)} | {shown(mine)} | {"agree" if agree else "differ: " + field.why} |')
    return rows, complaints


# --- by opcode --------------------------------------------------------------------------------------------------------

def by_opcode(packets):
    """Returns the packets as {(opcode, IP version): packets}."""
    groups = collections.defaultdict(list)
    for packet in packets:
        if is_rc(packet):
            groups[opcode(packet), 6 if packet['ipv6.version'] else 4].append(packet)
    return groups


def ack_request(packets):
    return ', '.join(sorted({p['infiniband.bth.a'] for p in packets}))


def lengths_text(theirs, mine):
    """Returns the frame lengths that occur both in the reference and in our frames for the same operations. Equal
    lengths mean that segmentation, headers and padding are equal."""
    reference, ours = ({int(p['frame.len']) for p in packets} for packets in (theirs, mine))
    common = sorted(reference & ours)
    return ', '.join(map(str, common)) if common else f'none in common: {sorted(reference)} and {sorted(ours)}'


def opcodes_table(reference, ours):
    theirs, mine = by_opcode(reference), by_opcode(ours)
    rows, complaints = [], []
    for key in sorted(set(theirs) | set(mine)):
        name = f'{OPCODES[key[0]]}{" (IPv6)" if key[1] == 6 else ""}'
        if key not in mine or key not in theirs:
            where = 'the reference' if key in theirs else 'ours'
            rows.append(f'| {key[0]} | {name} | only in {where} | | |')
            continue
        lengths = lengths_text(theirs[key], mine[key])
        if lengths.startswith('none'):
            complaints.append(f'{name}: frame lengths {lengths}')
        rows.append(f'| {key[0]} | {name} | {lengths} | {ack_request(theirs[key])} | {ack_request(mine[key])} |')
    return rows, complaints


# --- what only a whole flow can show --------------------------------------------------------------------------------------

def port_sequences(packets):
    """Returns the UDP source ports per destination QP, in the order of the packets. A port that is equal to the
    previous port is left out."""
    out = collections.defaultdict(list)
    for packet in filter(is_rc, packets):
        ports = out[packet['infiniband.bth.destqp'], first_of('ip.dst', 'ipv6.dst')(packet)]
        if not ports or ports[-1] != packet['udp.srcport']:
            ports.append(packet['udp.srcport'])
    return out


def flow_complaints(packets):
    """Returns one complaint per QP whose UDP source port alternates. A connection has one UDP source port (A17.3.2).
    Switches select a path by a hash of this port, and must not reorder the packets of a QP. A later QP with the same
    number may have another port. So a port may change, but must not change back."""
    return [f'packets to QP {qp} alternate between UDP source ports {", ".join(ports)}'
            for (qp, _), ports in port_sequences(packets).items() if len(ports) != len(set(ports))]
