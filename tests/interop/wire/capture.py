"""Reads capture files and computes the checksums of RoCEv2. It uses no code of the product, so that it can check the
product."""
import struct
import zlib

PCAP_MAGICS = {b'\xd4\xc3\xb2\xa1': '<', b'\x4d\x3c\xb2\xa1': '<', b'\xa1\xb2\xc3\xd4': '>', b'\xa1\xb2\x3c\x4d': '>'}
PCAPNG_ENHANCED_PACKET = 6
ROCE_PORT = 4791
VLAN_TAG = b'\x81\x00'


def frames(path):
    """Yields every frame of a pcap file or of a little-endian pcapng file."""
    with open(path, 'rb') as file:
        yield from frames_of(file.read())


def frames_of(data):
    order = PCAP_MAGICS.get(data[:4])
    return _pcap(data, order) if order else _pcapng(data)


def _pcap(data, order):
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from(order + 'I', data, at + 8)[0]
        yield data[at + 16:at + 16 + length]
        at += 16 + length


def _pcapng(data):
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from('<II', data, at)
        if at + length > len(data):
            return  # the capture ends within a block
        if kind == PCAPNG_ENHANCED_PACKET:
            captured = struct.unpack_from('<I', data, at + 20)[0]
            yield data[at + 28:at + 28 + captured]
        if length < 12:
            raise ValueError(f'pcapng block of {length} bytes at {at}')
        at += length


def roce_parts(frame):
    """Returns (IP header, UDP datagram) of a RoCEv2 frame. Returns None for other frames."""
    if frame[12:14] == VLAN_TAG:
        frame = frame[:12] + frame[16:]
    kind = frame[12:14]
    if kind == b'\x08\x00' and frame[23] == 17:
        at = 14 + (frame[14] & 15) * 4
        end = 14 + struct.unpack_from('>H', frame, 16)[0]
    elif kind == b'\x86\xdd' and frame[20] == 17:
        at = 54
        end = 54 + struct.unpack_from('>H', frame, 18)[0]
    else:
        return None
    if struct.unpack_from('>H', frame, at + 2)[0] != ROCE_PORT:
        return None
    return frame[14:at], frame[at:end]


def icrc(ip, udp):
    """Computes the ICRC (RoCEv2 annex A17.3.3). It is the CRC-32 over eight bytes 0xff and the packet. Every field
    that a router may change is set to ones. The last four bytes of `udp` are the place of the ICRC, which is little
    endian."""
    ip, udp = bytearray(ip), bytearray(udp)
    if ip[0] >> 4 == 4:
        for i in (1, 8, 10, 11):  # type of service, time to live, header checksum
            ip[i] = 0xff
    else:
        ip[0] |= 0x0f             # traffic class and flow label
        ip[1] = ip[2] = ip[3] = 0xff
        ip[7] = 0xff              # hop limit
    udp[6] = udp[7] = 0xff        # checksum
    udp[8 + 4] = 0xff             # BTH: FECN, BECN, reserved
    return zlib.crc32(b'\xff' * 8 + bytes(ip) + bytes(udp[:-4]))


def icrc_is_right(ip, udp):
    return icrc(ip, udp) == struct.unpack_from('<I', udp, len(udp) - 4)[0]


def count_icrcs(path):
    """Returns (right, wrong): the number of right ICRCs and of wrong ICRCs in all RoCEv2 frames of a file."""
    return count(frames(path))


def count(some):
    """Returns (right, wrong): the number of right ICRCs and of wrong ICRCs in the RoCEv2 frames among `some`."""
    parts = [p for p in map(roce_parts, some) if p]
    right = sum(icrc_is_right(*p) for p in parts)
    return right, len(parts) - right
