"""Tests with NICs that rocid cannot use. rocid must print one line with a remedy. The file of the VFIO group
determines who may use a NIC."""
import machine
import nics
from bench import Inside, check

VMXNET3, VIRTIO, E1000E = machine.NICS
NOBODY = '/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all'
NO_DEVICE, NO_NIC = '0000:00:1e.0', '0000:00:1f.2'


class Rows:
    def __init__(self, bench):
        self.bench = bench

    def refused(self, config, *texts, under=''):
        rocid = Inside(self.bench, config, under)
        check(not rocid.launch(), 'it serves')
        said = [line for line in rocid.log().splitlines() if 'rocid: info' not in line]
        check(rocid.status == 1, f'status {rocid.status}: {said}')
        check(len(said) == 1 and all(t in said[0] for t in texts), f'not one line with {texts}:\n' + '\n'.join(said))
        return said[0].split('): ', 1)[-1]

    def row(self, address, *texts):
        return lambda: self.refused(nics.config(VMXNET3).replace(VMXNET3.address, address), *texts)

    def files(self):
        nics.bind(self.bench, VMXNET3)
        return nics.group_file(self.bench, VMXNET3)

    def no_permission(self):
        return self.refused(nics.config(VMXNET3), f'no permission to open {self.files()}', under=NOBODY)

    def little_memory(self):
        self.bench.guest.must(f'chown user {self.files()}')
        return self.refused(nics.config(VMXNET3), 'LimitMEMLOCK', under=f"dash -c 'ulimit -l 1024; exec {NOBODY} \"$@\"' words")

    def by_user(self):
        self.bench.guest.must(f'chown user {self.files()}')
        with Inside(self.bench, nics.config(VMXNET3), NOBODY) as inside:
            proc = self.bench.guest.must(f'cat /proc/{inside.pid}/status')
            check('CapEff:\t0000000000000000' in proc and 'Uid:\t1000\t1000' in proc, proc)
            return 'no capability, user 1000; ' + self.bench.cross(inside.end(1), self.bench.there('vmxnet3', 1), 'ib_write_bw -F -m 4096 -s 65536 -n 20')

    def busy(self):
        with Inside(self.bench, nics.config(VMXNET3)):
            return self.refused(nics.config(VMXNET3), f'another process has {VMXNET3.address}', 'is busy')

    def ordinary_pages(self):
        self.files()
        with Inside(self.bench, nics.config(VMXNET3, top='hugepages = "never"')) as inside:
            check('memory: ordinary pages' in inside.log(), inside.log())
            return self.bench.cross(inside.end(1), self.bench.there('vmxnet3', 1), 'ib_write_bw -F -m 4096 -s 65536 -n 20')

    def others_go_on(self):
        both = nics.config(VMXNET3).replace(VMXNET3.address, NO_DEVICE)
        both += f'[[device]]\nname = "roci1"\nport = "af_packet"\ninterface = "{self.bench.kernel_nic}"\n'
        with Inside(self.bench, both) as inside:
            log = inside.log()
            check('rocid serves only the other devices' in log and f'there is no PCI device {NO_DEVICE}' in log, log)
            check('PORT_ACTIVE' in inside.devinfo('roci1'), 'roci1 is not active')

    def rows(self):
        """Yields tuples (name, body, whether --quick runs the row)."""
        yield 'no such PCI device', self.row(NO_DEVICE, f'there is no PCI device {NO_DEVICE} here'), True
        yield 'a PCI device that is no NIC', self.row(NO_NIC, 'is no network card'), True
        yield 'a NIC without driver', self.row(VMXNET3.address, f'no driver has {VMXNET3.address}', 'dpdk-devbind.py -b vfio-pci'), True
        yield "a NIC of the kernel's", self.row(E1000E.address, f"the kernel's driver e1000e has {E1000E.address}"), True
        yield 'no right to the group', self.no_permission, True
        yield 'too little locked memory', self.little_memory, True
        yield 'a user with the right to the group', self.by_user, True
        yield 'a NIC that another rocid has', self.busy, True
        yield 'ordinary pages instead of hugepages', self.ordinary_pages, True
        yield 'the other devices go on', self.others_go_on, True
