"""Tests of IPv4 header checksums that rocid or the port computes and checks, and of the counters of faulty frames.
Each kind of fault has one counter. DPDK's driver of TAPs can compute and check these checksums, as NICs do."""
from cases import Group, check, cross
from hosts import Program
from ports import bridge, tap_config, tap_joins

import wire_end
import wrong

WIRE_END = wire_end.__file__
KERNEL_END, TIMES = 'rtap0', 3


def counted(host, where):
    return wrong.counted(host.status()['host'], where)


def wrong_frames_are_counted(net):
    said = []
    for what, where in wrong.KINDS:
        before = counted(net.a, where)
        frame = wrong.frame(f'02:00:00:00:01:0{net.a.number}', net.a.ipv4, net.a.roce[4], **what)
        net.a.sh(f'python3 {WIRE_END} send {KERNEL_END} ' + ' '.join([frame.hex()] * TIMES))
        net.wait(lambda: counted(net.a, where) >= before + TIMES, f'{what or "nothing wrong"} is not counted as {where[1]}')
        more = counted(net.a, where) - before
        check(more == TIMES, f'{what}: {more} frames counted as {where[1]} instead of {TIMES}')
        said.append(where[1])
    return ', '.join(dict.fromkeys(said))


def right_on_the_wire(net):
    """Frames of rocid must have right header checksums, whether rocid or the driver computes them. A program at the
    kernel's end of the TAP checks the frames."""
    listener = Program([*net.a.inside, 'python3', WIRE_END, 'listen', KERNEL_END, '200', '60'])
    try:
        net.wait(lambda: 'listening' in listener.output(), 'nobody listens')
        cross(net, 'ibv_rc_pingpong -n 300 -s 2000 -m 1024')
        check(listener.wait(70) == 0, listener.output())
    finally:
        listener.kill()
    right, bad = map(int, listener.output().split()[-2:])
    check(right >= 200 and bad == 0, f'{bad} of {right + bad} header checksums are wrong')
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
    Group('checksums by the port', cases_of('checksums by the port', 'received and sent', 'the port does IPv4 header checksums: received and sent'), tap_config, prepare=bridge,
          started=tap_joins),
    Group('checksums by rocid', cases_of('checksums by rocid', 'none', 'checksum_offload = "off"'), by_rocid, prepare=bridge, started=tap_joins),
]
