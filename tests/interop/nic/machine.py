"""The guest in which rocid runs. It has systemd, an IOMMU, NICs of several vendors, and an installed rocid."""
import dataclasses
import glob
import pathlib

import guest
import image

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]
MTU = 4200
LIB = 'usr/lib/x86_64-linux-gnu'
PROGRAMS = ('ibv_devinfo', 'ibv_devices', 'ibv_rc_pingpong', 'ib_write_bw', 'ib_send_lat', 'ib_send_bw', 'setpriv', 'systemctl', 'journalctl')
DRIVERS = ('bus_pci', 'bus_vdev', 'mempool_ring', 'net_ring', 'net_af_packet', 'net_af_xdp', 'net_e1000', 'net_vmxnet3', 'net_virtio')
UNITS = ('*.target', '*.slice', 'systemd-journald.service', 'systemd-journald*.socket')
TEXTS = {'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n', 'etc/group': 'root:x:0:\nuser:x:1000:\n',
         'etc/machine-id': '0' * 31 + '1\n'}  # without a machine ID, systemd would assume a first boot and enable every unit


def plugins():
    """Returns (files, links). DPDK treats a plugin with two names as two plugins. So the plugins in DPDK's folder
    must be links."""
    files, links = {}, {}
    for name in DRIVERS:
        found = glob.glob(f'/{LIB}/dpdk/pmds-*/librte_{name}.so.*.*')  # .so.23.0 and not .so.23, because DPDK loads the file with this name
        if not found:
            raise image.CannotBuild(f"DPDK's driver {name} is not installed (./dev setup)")
        file = f'{LIB}/{pathlib.Path(found[0]).stem}'  # .so.23, the name that linked programs load
        files[file], links[found[0].lstrip('/')] = found[0], f'/{file}'
    return files, links


def systemd():
    files = ['/usr/lib/systemd/systemd', '/usr/lib/systemd/systemd-journald', *(f for u in UNITS for f in glob.glob(f'/usr/lib/systemd/system/{u}'))]
    if not pathlib.Path(files[0]).exists():
        raise image.CannotBuild('systemd is not installed (./dev setup)')
    return {f.lstrip('/'): f for f in files}


def contents(build):
    """Returns the content of the guest. `build` is Meson's build folder."""
    ours = {'usr/bin/rocid': 'apps/rocid/rocid', 'usr/bin/roci': 'apps/roci/roci',
            f'{LIB}/rocinante/libibverbs.so.1': 'verbs_api/libibverbs/libibverbs.so.1',
            f'{LIB}/rocinante/librdmacm.so.1': 'verbs_api/librdmacm/librdmacm.so.1'}
    files = {name: str(build / path) for name, path in ours.items()}
    files |= {'etc/systemd/system/rocid.service': str(REPO / 'config/rocid.service'), 'usr/bin/hugepages.sh': str(REPO / 'config/hugepages.sh')}
    drivers, links = plugins()
    files |= systemd() | drivers
    wanted = 'usr/lib/systemd/system/sysinit.target.wants/'
    links |= {'usr/lib/systemd/system/default.target': 'multi-user.target', wanted + 'systemd-journald.service': '../systemd-journald.service'}
    return image.Contents('nic', HERE / 'init.sh', PROGRAMS, files, TEXTS, links,
                          boot_modules=('virtio_net', 'e1000e', 'vfio_pci', 'vfio_iommu_type1', '8021q'))


@dataclasses.dataclass(frozen=True)
class Nic:
    """A NIC that only rocid uses. `number` is the last digit of its PCI slot. The tap of the NIC has the name of the
    NIC."""
    name: str
    number: int
    words: str  # QEMU's device and its options
    queues: int = 1  # for the case with several queues: the queues of rocid's device and the engines of rocid
    tap: str = ''  # further options of the tap
    interrupts: bool = True  # frames cause interrupts

    address = property(lambda self: f'0000:00:1{self.number}.0')
    mac = property(lambda self: f'52:54:00:00:01:0{self.number}')

    def devices(self):
        return [*guest.tap_netdev(self.name, self.name, self.tap),
                '-device', f'{self.words},netdev={self.name},mac={self.mac},romfile=,bus=pcie.0,addr=1{self.number}.0']


NICS = (Nic('vmxnet3', 1, 'vmxnet3', 2),
        Nic('virtio', 2, f'virtio-net-pci,disable-legacy=on,iommu_platform=on,mq=on,vectors=6,host_mtu={MTU},{guest.OFFLOADS}', 2, ',queues=2'),
        Nic('e1000e', 3, 'e1000e', interrupts=False))  # emulates an 82574; its driver does not fill the table of vectors (IVAR), so frames cause no interrupts
SIDE, SIDE_MAC = 'side', '52:54:00:00:01:00'  # name and MAC address of the NIC that the guest's kernel uses


def machine(words=('intel_iommu=on',)):
    devices = [w for nic in NICS for w in nic.devices()]
    devices += [*guest.tap_netdev(SIDE, SIDE), *guest.virtio_nic(SIDE, SIDE_MAC, MTU, ',bus=pcie.0,addr=10.0')]
    iommu = ('-device', 'intel-iommu,caching-mode=on,intremap=on')  # VFIO also needs the remapping of interrupts
    return guest.Machine('q35,usb=off,vmport=off', 1024, 2, (*iommu, *devices), words)
