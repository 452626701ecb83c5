"""The guest that is the peer of rocid. It has the kernel's rdma_rxe, and programs of this machine that use it."""
import glob
import pathlib

import guest
import image

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ('tc', 'rdma', 'ibv_devinfo', 'ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong',
            'ib_send_bw', 'ib_send_lat', 'ib_write_bw', 'ib_write_lat', 'ib_read_bw', 'ib_read_lat', 'ib_atomic_bw', 'ib_atomic_lat',
            'rping', 'ucmatose', 'udaddy', 'cmtime')
PROVIDERS = '/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so'
DRIVER = '/etc/libibverbs.d/rxe.driver'


def contents(ops):
    providers = glob.glob(PROVIDERS)
    if not providers:
        raise image.CannotBuild('the rxe provider is not installed (ibverbs-providers)')
    conformance = ops.parents[2] / 'conformance'
    ours = {'ops': ops, 'arguments': conformance / 'verbs/conformance_arguments', 'cm_errors': conformance / 'rdma_cm/cm_errors'}
    files = {**{f'usr/bin/{name}': str(path) for name, path in ours.items()}, **{p.lstrip('/'): p for p in (*providers, DRIVER)}}
    return image.Contents('rxe', HERE / 'init.sh', PROGRAMS, files, boot_modules=('virtio_net', 'crc32_generic', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm'),
                          later_modules=('sch_netem', 'sch_prio', 'cls_u32', 'em_u32', '8021q'))


def machine(tap, mac, addresses, mtu, vhost='', side=''):
    """Returns the machine. If `vhost` is given, the NIC with `addresses` is connected to the vhost-user socket
    `vhost`, and the tap is a second NIC with the address `side`."""
    devices = []
    if vhost:
        # vectors=0 is necessary, because with MSI-X a vhost-user NIC of QEMU 7.2 needs KVM and crashes without KVM.
        devices = ['-chardev', f'socket,id=vhost,path={vhost}', '-netdev', 'vhost-user,id=vnet,chardev=vhost',
                   *guest.virtio_nic('vnet', mac[:-2] + 'f0', mtu, ',vectors=0')]
    devices += [*guest.tap_netdev('net', tap), *guest.virtio_nic('net', mac, mtu)]
    words = (f'peer.mtu={mtu}', *(f'peer.address={a}' for a in addresses), *([f'peer.side={side}'] if side else []))
    return guest.Machine(devices=tuple(devices), words=words)
