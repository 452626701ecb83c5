"""The guest that rocid runs in: systemd, an IOMMU, NICs of several makes, and rocid as somebody would install it."""
import glob
import pathlib

import guest
import image

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]
LIB = 'usr/lib/x86_64-linux-gnu'
PROGRAMS = ('ibv_devinfo', 'ibv_devices', 'ibv_rc_pingpong', 'ib_write_bw', 'ib_send_lat', 'ib_send_bw', 'setpriv', 'systemctl', 'journalctl')
DRIVERS = ('bus_pci', 'bus_vdev', 'mempool_ring', 'net_ring', 'net_af_packet', 'net_af_xdp', 'net_e1000', 'net_vmxnet3', 'net_virtio')
UNITS = ('*.target', '*.slice', 'systemd-journald.service', 'systemd-journald*.socket')
TEXTS = {'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n', 'etc/group': 'root:x:0:\nuser:x:1000:\n',
         'etc/machine-id': '0' * 31 + '1\n'}  # there already: otherwise systemd takes this for the first boot and enables every unit


def plugins():
    """(files, links): what DPDK looks for in its folder of plugins are links there, as one loaded by two names would be two to it."""
    files, links = {}, {}
    for name in DRIVERS:
        found = glob.glob(f'/{LIB}/dpdk/pmds-*/librte_{name}.so.*.*')  # .so.23.0, not .so.23: DPDK goes by that
        if not found:
            raise image.CannotBuild(f"DPDK's driver {name} is not installed (./dev setup)")
        file = f'{LIB}/{pathlib.Path(found[0]).stem}'  # .so.23, as programs that are linked with it have it
        files[file], links[found[0].lstrip('/')] = found[0], f'/{file}'
    return files, links


def systemd():
    files = ['/usr/lib/systemd/systemd', '/usr/lib/systemd/systemd-journald', *(f for u in UNITS for f in glob.glob(f'/usr/lib/systemd/system/{u}'))]
    if not pathlib.Path(files[0]).exists():
        raise image.CannotBuild('systemd is not installed (./dev setup)')
    return {f.lstrip('/'): f for f in files}


def contents(build):
    """`build`: the folder that Meson built into."""
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


def machine(devices, words=()):
    iommu = ('-device', 'intel-iommu,caching-mode=on,intremap=on')
    return guest.Machine('q35,usb=off,vmport=off', 1024, 2, (*iommu, *devices), ('intel_iommu=on', *words))
