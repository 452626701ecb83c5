"""Checks a capture with Wireshark's dissector."""
import subprocess

from lab import Failure

# Dissectors that are disabled, because they guess the protocol of an RDMA payload. For example, they take a payload
# of zeros for RPC-over-RDMA.
GUESSERS = ('smc', 'smb_direct', 'rpcordma', 'nvme-rdma', 'lnet', 'iser', 'infiniband_sdp', 'fcoib', 'infiniband.eoib')
# The name of a heuristic dissector that is also disabled. It takes a payload for an Ethernet frame without addresses if
# its first two bytes are a known EtherType and bytes 2 and 3 are zero. There are 139 known EtherTypes. So the dissector
# would report 1 in 471 WRITEs of 2 random bytes as malformed.
GUESS_BY_ETHERTYPE = 'eth_over_ib'

FIELDS = ('frame.len', 'ip.dst', 'ipv6.dst', 'ip.version', 'ip.hdr_len', 'ip.dsfield', 'ip.flags', 'ip.ttl', 'ip.checksum.status', 'ipv6.version', 'ipv6.tclass', 'ipv6.flow',
          'ipv6.hlim', 'udp.srcport', 'udp.dstport', 'udp.checksum', 'udp.length', 'infiniband.bth.opcode', 'infiniband.bth.se', 'infiniband.bth.m',
          'infiniband.bth.padcnt', 'infiniband.bth.tver', 'infiniband.bth.p_key', 'infiniband.bth.destqp', 'infiniband.bth.a',
          'infiniband.bth.reserved7', 'infiniband.bth.psn', 'infiniband.aeth.syndrome', 'infiniband.aeth.msn', 'infiniband.reth.dmalen',
          'infiniband.reth.va', 'infiniband.reth.r_key', 'infiniband.invariant.crc')


def tshark(path, *args):
    guessers = [word for name in GUESSERS for word in ('--disable-protocol', name)]
    command = ['tshark', '-r', str(path), '-o', 'ip.check_checksum:TRUE', '--disable-heuristic', GUESS_BY_ETHERTYPE, *guessers, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Failure(f'{" ".join(command)}: {done.stderr[-1000:]}')
    return done.stdout.splitlines()


def malformed(path):
    """Returns the frames that the dissector reports as malformed or with an error. The dissector also reports a UDP
    checksum of zero over IPv6. RoCEv2 permits this checksum, because the ICRC covers the datagram (RFC 6936). So
    errors of such frames are ignored."""
    return tshark(path, '-Y', '_ws.malformed || ip.checksum.status == "Bad" || (_ws.expert.severity == error && !(ipv6 && udp.checksum == 0))')


def not_roce(path):
    """Returns the frames that are not RoCEv2. On the loopback there must be none."""
    return tshark(path, '-Y', '!infiniband')


def packets(path):
    """Returns every RoCEv2 packet as a dictionary {field: text}."""
    rows = tshark(path, '-Y', 'infiniband', '-T', 'fields', '-E', 'occurrence=f', *(word for f in FIELDS for word in ('-e', f)))
    return [dict(zip(FIELDS, row.split('\t'))) for row in rows]
