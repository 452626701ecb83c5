"""Checksums of IPv4 headers, made and checked by the port or by rocid; and wrong frames, counted by what is wrong with them. DPDK's driver of
TAPs does for these checksums what NICs do."""
import pathlib
import struct

from cases import Group, check, cross
from hosts import Program
from ports import bridge, tap_config, tap_joins

import capture
from wire_end import checksum

WIRE_END = pathlib.Path(__file__).with_name('wire_end.py')
KERNEL_END, TIMES = 'rtap0', 3
NOBODYS_QP = 0xabcdef


def mac(text):
    return bytes.fromhex(text.replace(':', ''))


def address(text):
    return bytes(map(int, text.split('.')))


def frame_to(host, fragment=0x4000, udp_length=None, header_checksum=None, icrc=None, to=None, cut=0):
    """An RC SEND Only without payload, for a queue pair that nobody has; what is given stands there instead of what is right."""
    bth = struct.pack('>BBHII', 4, 0x40, 0xffff, NOBODYS_QP, 0)
    udp = struct.pack('>HHHH', 50000, capture.ROCE_PORT, udp_length or 8 + len(bth) + 4, 0)
    ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + 8 + len(bth) + 4, 0, fragment, 64, 17, 0, address(host.ipv4), address(to or host.roce[4]))
    right = checksum(ip)
    ip = ip[:10] + struct.pack('>H', right if header_checksum is None else right ^ header_checksum) + ip[12:]
    crc = capture.icrc(ip, udp + bth + bytes(4)) ^ (icrc or 0)
    frame = mac(f'02:00:00:00:01:0{host.number}') + mac('02:00:00:00:00:77') + b'\x08\x00' + ip + udp + bth + struct.pack('<I', crc)
    return frame[:len(frame) - cut]


WRONG = [  # what is wrong, where it is counted
    ({}, ('counters', 'unknown_qp')),
    ({'header_checksum': 0x0100}, ('frames_by_verdict', 'bad_ip_checksum')),
    ({'header_checksum': 0x0001}, ('frames_by_verdict', 'bad_ip_checksum')),
    ({'fragment': 0x2000}, ('frames_by_verdict', 'ip_fragment')),
    ({'udp_length': 4000}, ('frames_by_verdict', 'bad_udp_length')),
    ({'icrc': 1}, ('frames_by_verdict', 'bad_icrc')),
    ({'cut': 5}, ('frames_by_verdict', 'truncated')),
]


def counted(host, where):
    return sum(e[where[0]][where[1]] for e in host.status()['host']['engines'])


def wrong_frames_are_counted(net):
    said = []
    for what, where in WRONG:
        before = counted(net.a, where)
        net.a.sh(f'python3 {WIRE_END} send {KERNEL_END} ' + ' '.join([frame_to(net.a, **what).hex()] * TIMES))
        net.wait(lambda: counted(net.a, where) >= before + TIMES, f'{what or "nothing wrong"} is not counted as {where[1]}')
        more = counted(net.a, where) - before
        check(more == TIMES, f'{what}: {more} frames counted as {where[1]} instead of {TIMES}')
        said.append(where[1])
    return ', '.join(dict.fromkeys(said))


def right_on_the_wire(net):
    """What the driver makes of it reaches the kernel right."""
    listener = Program([*net.a.inside, 'python3', str(WIRE_END), 'listen', KERNEL_END, '200', '20'])
    try:
        net.wait(lambda: 'listening' in listener.output(), 'nobody listens')
        cross(net, 'ibv_rc_pingpong -n 300 -s 2000 -m 1024')
        check(listener.wait(30) == 0, listener.output())
    finally:
        listener.kill()
    right, wrong = map(int, listener.output().split()[-2:])
    check(right >= 200 and wrong == 0, f'{wrong} of {right + wrong} header checksums are wrong')
    return f'{right} frames'


def says(status, log):
    def body(net):
        for host in (net.a, net.b):
            port = host.status()['host']['ports'][0]
            check(port['checksum_offload'] == status, f'roci status: {port}')
            check(log in host.log(), f'"{log}" is not in the log:\n{host.log()}')
    return body


def cases_of(name, *said):
    def cases(quick):
        yield f'{name}: said by roci status and in the log', says(*said)
        yield f'{name}: what it sends has right header checksums', right_on_the_wire
        yield f'{name}: wrong frames are counted by reason', wrong_frames_are_counted
    return cases


def by_rocid(host):
    return tap_config(host) + 'checksum_offload = "off"\n'


GROUPS = [
    Group('checksums by the port', cases_of('checksums by the port', 'received and sent', 'left to the port: received and sent'), tap_config, prepare=bridge,
          started=tap_joins),
    Group('checksums by rocid', cases_of('checksums by rocid', 'none', 'checksum_offload = "off"'), by_rocid, prepare=bridge, started=tap_joins),
]
