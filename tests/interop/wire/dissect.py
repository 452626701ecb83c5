"""Checks a capture with Wireshark's dissector."""
import subprocess

from lab import Failure

# Dissectors to disable, because they guess the kind of an RDMA payload. For example, a payload of zeros looks like RPC-over-RDMA.
GUESSERS = ('smc', 'smb_direct', 'rpcordma', 'nvme-rdma', 'lnet', 'iser', 'infiniband_sdp', 'fcoib', 'infiniband.eoib')
# Another guess: a payload whose bytes 2 and 3 are zero is taken for an Ethernet frame without addresses, if its first two bytes are a known
# EtherType. Of the WRITEs of 2 random bytes, 1 in 471 looks like that (139 EtherTypes) and would be reported as malformed.
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
    """Returns the frames that the dissector reports as malformed or with an error. Ignores errors of frames with a UDP checksum of zero
    over IPv6, which the dissector reports but RoCEv2 permits, because the ICRC covers the datagram (RFC 6936)."""
    return tshark(path, '-Y', '_ws.malformed || ip.checksum.status == "Bad" || (_ws.expert.severity == error && !(ipv6 && udp.checksum == 0))')


def not_roce(path):
    """Returns the frames that are not RoCEv2. There should be none on the loopback."""
    return tshark(path, '-Y', '!infiniband')


def packets(path):
    """Returns every RoCEv2 packet as {field: text}."""
    rows = tshark(path, '-Y', 'infiniband', '-T', 'fields', '-E', 'occurrence=f', *(word for f in FIELDS for word in ('-e', f)))
    return [dict(zip(FIELDS, row.split('\t'))) for row in rows]
