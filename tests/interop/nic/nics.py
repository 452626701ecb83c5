"""Tests of a NIC that rocid uses by vfio and an emulated IOMMU: traffic, link, interrupts, checksums and two
queues."""
import re
import time

from bench import TAKES_LONG, check, config_addresses, wait_until
from bench import Inside

import wire_end
import wrong


def config(nic, engines=1, more='', top=''):
    return (f'[engine]\ncount = {engines}\nspin_us = 20\nmax_sleep_us = 1000000\n[memory]\nmbufs = 4096\n{top}\n[[device]]\nname = "roci0"\nport = "pci"\n'
            f'pci = "{nic.address}"\naddresses = {config_addresses(nic.number, 0)}\n{more}')


def bind(bench, nic, driver='vfio-pci'):
    """Binds a NIC to a driver, as driverctl does. If `driver` is "", the NIC gets no driver."""
    at = f'/sys/bus/pci/devices/{nic.address}'
    bench.guest.must(f'echo {driver} >{at}/driver_override; [ ! -e {at}/driver ] || echo {nic.address} >{at}/driver/unbind; ' +
                     (f'echo {nic.address} >/sys/bus/pci/drivers_probe; test -e {at}/driver' if driver else 'true'))


def group_file(bench, nic):
    return '/dev/vfio/' + bench.guest.must(f'basename $(readlink /sys/bus/pci/devices/{nic.address}/iommu_group)').strip()


class Rows:
    """The cases of one NIC. All cases before `two_queues` use the same rocid."""

    def __init__(self, bench, nic):
        self.bench, self.nic, self.inside = bench, nic, None

    def starts(self):
        bind(self.bench, self.nic)
        self.inside = Inside(self.bench, config(self.nic)).__enter__()
        info = wait_until(lambda: 'PORT_ACTIVE' in (said := self.inside.devinfo()) and said, 'the port is active', 30)
        check('active_mtu:\t\t4096' in info, info)
        check(f'node_guid:\t\t\t{eui(self.nic.mac)}' in info, info)
        log = self.inside.log()
        check('memory: hugepages' in log, log)
        return 'vfio-pci, VT-d, path MTU 4096, hugepages'

    def cross(self, program, **how):
        return lambda: self.bench.cross(self.inside.end(self.nic.number), self.bench.there(self.nic.name, self.nic.number), program, **how)

    def link(self):
        for plugged, state in ((False, 'PORT_DOWN'), (True, 'PORT_ACTIVE')):
            self.bench.guest.pull(self.nic.name, plugged)
            wait_until(lambda s=state: s in self.inside.devinfo(), f'the port is {state}', 30)
        return self.cross('ib_write_bw -F -m 4096 -s 65536 -n 20')()

    def idle(self):
        """An idle engine may sleep for up to a second. Frames must reach it earlier. The NIC must wake the engine by
        an interrupt. If the NIC causes no interrupts, rocid must poll the NIC."""
        def looked():
            return sum(int(n) for line in self.bench.guest.must(f'grep {self.nic.address} /proc/interrupts').splitlines() for n in re.findall(r'\s(\d+)(?=\s)', line))
        check(self.bench.ping(f'10.9{self.nic.number}.0.2'), 'no answer to ping')
        before = looked()
        times = self.bench.ping(f'10.9{self.nic.number}.0.2', 6)
        after = looked()
        check(len(times) == 6 and sorted(times)[2] < 300, f'round trips of {times} ms')  # an engine that is not woken could sleep for a second
        middle, port = sorted(times)[2], self.bench.status(self.inside)['ports'][0]
        if not self.nic.interrupts:
            check(after == before and port['interrupts'] == 'none yet', f'{after - before} interrupts: has the driver learned it? {port}')
            return f'the driver promises interrupts and none comes: rocid looks by itself; round trip {middle:.1f} ms'
        check(after > before and port['interrupts'] == 'wake', f'{after - before} interrupts, {port}')
        return f'{after - before} interrupts for 6 pings, round trip {middle:.1f} ms'

    def checksums(self):
        """rocid must count each kind of faulty frame, whether the NIC or rocid detects the fault."""
        left = self.bench.status(self.inside)['ports'][0]['checksum_offload']
        to = (self.nic.mac, f'10.9{self.nic.number}.0.1', f'10.9{self.nic.number}.0.2')
        for what, where in ((what, where) for what, where in wrong.KINDS if 'cut' not in what):  # a NIC extends frames that are too short, so such frames are left out
            before = wrong.counted(self.bench.status(self.inside), where)
            said = self.bench.shell(' '.join([*self.bench.inside, 'python3', wire_end.__file__, 'send', self.nic.name, wrong.frame(*to, **what).hex()]))
            check(said[0] == 0, said[1])
            wait_until(lambda b=before, w=where: wrong.counted(self.bench.status(self.inside), w) > b, f'{what or "nothing wrong"} is counted as {where[1]}', 30)
        return f'left to the NIC: {left}'

    def ends(self):
        self.inside.stop()
        check('ending' in self.inside.log(), self.inside.log())
        left = self.bench.guest.run('ls /run/dpdk /tmp/dpdk 2>/dev/null | grep rocid-')[1]
        check(not left, f'left behind: {left}')

    def two_queues(self):
        self.inside.stop()  # if --only has skipped cases, the rocid still runs
        with Inside(self.bench, config(self.nic, 2)) as inside:
            said = self.bench.cross(inside.end(self.nic.number), self.bench.there(self.nic.name, self.nic.number), 'ib_write_bw -F -m 4096 -s 65536 -n 30 -q 4')
            sent = [e['counters']['tx_frames'] for e in self.bench.status(inside)['engines']]
        check(len(sent) == 2 and all(sent), f'an engine sent nothing: {sent}; {said}')
        return f'{said}; frames by engine {sent}'

    def rows(self):
        """Yields tuples (name, body, whether --quick runs the row)."""
        first = self.nic.number == 1
        pingpong = 'ibv_rc_pingpong -m 4096 -n 200 -s 5000 -c'
        bandwidth, latency = 'ib_write_bw -F -m 4096 -s 65536 -n 100', 'ib_send_lat -F -s 64 -n 200'
        yield 'starts', self.starts, True
        yield 'ib_write_bw from the guest', self.cross(bandwidth), True
        yield 'ib_write_bw to the guest', self.cross(bandwidth, we_serve=True), True
        yield 'ib_send_lat', self.cross(latency), True
        yield 'ib_send_lat, the guest serves', self.cross(latency, we_serve=True), False
        yield 'ibv_rc_pingpong, IPv6', self.cross(pingpong, family='ipv6'), first
        yield 'ibv_rc_pingpong, the guest serves', self.cross(pingpong, we_serve=True), first
        yield 'the cable is pulled and comes back', self.link, True
        yield 'wrong frames are counted by reason', self.checksums, True
        yield 'sleeps until an interrupt', self.idle, True
        yield 'ends, and leaves nothing behind', self.ends, True
        if self.nic.queues > 1:
            yield 'two engines, two queues', self.two_queues, True


def eui(mac):
    b = mac.split(':')
    return f'{b[0]}{b[1]}:{b[2]}ff:fe{b[3]}:{b[4]}{b[5]}'.replace('5254', '5054', 1)
