#!/usr/bin/env python3
"""Sends and checks frames at the kernel's end of a link. Runs in the namespace of the link.

        wire_end.py send INTERFACE HEX…           sends frames without changes
        wire_end.py listen INTERFACE COUNT LIMIT  reads COUNT incoming RoCEv2 frames over IPv4, for at most LIMIT seconds, and prints the numbers
                                                  of frames with a right and with a wrong header checksum
"""
import socket
import struct
import sys
import time

ALL = 3  # ETH_P_ALL


def socket_on(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    s.bind((interface, ALL))
    return s


def send(interface, *frames):
    with socket_on(interface) as s:
        for frame in frames:
            s.send(bytes.fromhex(frame))


def checksum(header):
    total = sum(struct.unpack(f'>{len(header) // 2}H', header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def listen(interface, count, limit):
    right = wrong = 0
    end = time.monotonic() + float(limit)
    with socket_on(interface) as s:
        print('listening', flush=True)
        while right + wrong < int(count) and (left := end - time.monotonic()) > 0:
            s.settimeout(left)
            try:
                frame, address = s.recvfrom(1 << 16)
            except TimeoutError:
                break
            if address[2] == socket.PACKET_OUTGOING or frame[12:14] != b'\x08\x00' or frame[23] != 17 or frame[36:38] != struct.pack('>H', 4791):
                continue
            if checksum(frame[14:34]) == 0:
                right += 1
            else:
                wrong += 1
    print(right, wrong)


if __name__ == '__main__':
    {'send': send, 'listen': listen}[sys.argv[1]](*sys.argv[2:])
