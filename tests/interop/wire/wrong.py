"""RoCEv2 frames over IPv4 with at most one fault, and the counter that rocid increments per kind of fault."""
import struct

import capture
from wire_end import checksum

NOBODYS_QP = 0xabcdef
SOURCE_MAC = '02:00:00:00:00:77'


def mac(text):
    return bytes.fromhex(text.replace(':', ''))


def address(text):
    return bytes(map(int, text.split('.')))


def frame(to_mac, source, to, fragment=0x4000, udp_length=None, header_checksum=0, icrc=0, cut=0):
    """Returns a frame with an RC SEND Only without payload to a queue pair that does not exist. `fragment` and
    `udp_length` replace the correct values. `header_checksum` and `icrc` are the bits to flip. `cut` is the number of
    bytes that are removed at the end."""
    bth = struct.pack('>BBHII', 4, 0x40, 0xffff, NOBODYS_QP, 0)
    udp = struct.pack('>HHHH', 50000, capture.ROCE_PORT, udp_length or 8 + len(bth) + 4, 0)
    ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + 8 + len(bth) + 4, 0, fragment, 64, 17, 0, address(source), address(to))
    ip = ip[:10] + struct.pack('>H', checksum(ip) ^ header_checksum) + ip[12:]
    crc = capture.icrc(ip, udp + bth + bytes(4)) ^ icrc
    whole = mac(to_mac) + mac(SOURCE_MAC) + b'\x08\x00' + ip + udp + bth + struct.pack('<I', crc)
    return whole[:len(whole) - cut]


KINDS = [  # (fault, counter)
    ({}, ('counters', 'unknown_qp')),
    ({'header_checksum': 0x0100}, ('frames_by_verdict', 'bad_ip_checksum')),
    ({'header_checksum': 0x0001}, ('frames_by_verdict', 'bad_ip_checksum')),
    ({'fragment': 0x2000}, ('frames_by_verdict', 'ip_fragment')),
    ({'udp_length': 4000}, ('frames_by_verdict', 'bad_udp_length')),
    ({'icrc': 1}, ('frames_by_verdict', 'bad_icrc')),
    ({'cut': 5}, ('frames_by_verdict', 'truncated')),
]


def counted(host_status, where):
    """Returns the sum of a counter over all engines. `host_status` is the member "host" of the output of `roci
    status`."""
    return sum(engine[where[0]][where[1]] for engine in host_status['engines'])
