#!/usr/bin/env python3
"""Builds the guest that is our peer: Debian's kernel with rdma_rxe, and this machine's own RDMA programs, in an initramfs.

    tests/interop/rxe/image.py [FOLDER [PROGRAM…]]

Writes FOLDER/vmlinux and FOLDER/initramfs.gz. Needs no root: the kernel package is downloaded and unpacked, never installed;
programs and their libraries are copied from this machine.
"""
import gzip
import glob
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ['ip', 'tc', 'ss', 'rdma', 'dash', 'ibv_devinfo', 'ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong',
            'ib_send_bw', 'ib_send_lat', 'ib_write_bw', 'ib_write_lat', 'ib_read_bw', 'ib_read_lat', 'ib_atomic_bw', 'ib_atomic_lat',
            'rping', 'ucmatose', 'udaddy', 'cmtime']
PROVIDERS = '/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so'
LIBGCC = '/usr/lib/x86_64-linux-gnu/libgcc_s.so.1'  # pthread_exit loads it
BOOT_MODULES = ['virtio_pci', 'virtio_console', 'virtio_net', 'crc32_generic', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm']
LATER_MODULES = ['sch_netem', 'sch_prio', 'cls_u32', 'em_u32', '8021q']
FOLDERS = ['proc', 'sys', 'dev', 'run', 'tmp', 'root', 'etc', 'etc/libibverbs.d', 'usr', 'usr/bin', 'usr/lib', 'modules']


class CannotBuild(Exception):
    """What is missing on this machine."""


def run(*command, cwd=None):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd).stdout


# ---- the kernel -------------------------------------------------------------------------------------------------------

def kernel_package():
    found = re.search(r'Depends: (linux-image-[0-9]\S*)', run('apt-cache', 'depends', 'linux-image-amd64'))
    if not found:
        raise CannotBuild('apt knows no linux-image-amd64 (apt-get update?)')
    return found.group(1)


def unpack_kernel(folder):
    package = kernel_package()
    place = folder / package
    if (place / 'done').exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run('apt-get', '-qq', '-o', 'APT::Sandbox::User=root', 'download', package, cwd=place)
    deb = next(place.glob('*.deb'))
    run('dpkg', '-x', str(deb), str(place))
    deb.unlink()
    (place / 'done').touch()
    return place


def uncompressed(vmlinuz):
    """The ELF inside: QEMU boots it directly, which spares an emulated CPU seconds of decompressing."""
    at = vmlinuz.find(b'\xfd7zXZ\x00')
    image = lzma.LZMADecompressor().decompress(vmlinuz[at:]) if at >= 0 else b''
    if not image.startswith(b'\x7fELF'):
        raise CannotBuild('the kernel is not packed with xz')
    return image


def module_facts(path):
    found = re.search(rb'\0depends=([^\0]*)\0', path.read_bytes())
    return [d for d in found.group(1).decode().split(',') if d] if found else []


def modules(kernel):
    """{name: path} of what is wanted and all it depends on, in the order of loading; and the names to load at boot."""
    paths = {p.stem.replace('-', '_'): p for p in kernel.glob('lib/modules/**/*.ko')}
    order = {}

    def visit(name):
        name = name.replace('-', '_')
        if name in order or name not in paths:  # not there: part of the kernel itself
            return
        for needed in module_facts(paths[name]):
            visit(needed)
        order[name] = paths[name]
    for name in BOOT_MODULES:
        visit(name)
    boot = list(order)
    for name in LATER_MODULES:
        visit(name)
    return order, boot


# ---- programs ---------------------------------------------------------------------------------------------------------

def libraries(binary):
    return set(re.findall(r'(/\S+) \(0x', run('ldd', binary)))


def user_space(more):
    """{path in the guest: path here}."""
    files = {}
    for name in PROGRAMS:
        found = shutil.which(name, path='/usr/bin:/usr/sbin:/bin:/sbin')
        if not found:
            raise CannotBuild(f'{name} is not installed')
        files[f'usr/bin/{name}'] = found
    files.update({f'usr/bin/{pathlib.Path(p).name}': str(p) for p in more})
    if not glob.glob(PROVIDERS):
        raise CannotBuild('the rxe provider is not installed (ibverbs-providers)')
    files.update({p.lstrip('/'): p for p in glob.glob(PROVIDERS)})
    files['etc/libibverbs.d/rxe.driver'] = '/etc/libibverbs.d/rxe.driver'
    files[LIBGCC.lstrip('/')] = LIBGCC
    for binary in list(files.values()):
        with open(binary, 'rb') as file:
            if file.read(4) == b'\x7fELF':
                files.update({lib.lstrip('/'): lib for lib in libraries(binary)})
    busybox = shutil.which('busybox')
    if not busybox or 'not a dynamic executable' not in subprocess.run(['ldd', busybox], capture_output=True, text=True, check=False).stderr:
        raise CannotBuild('busybox-static is not installed')
    files['usr/bin/busybox'] = busybox
    return files


# ---- the archive ------------------------------------------------------------------------------------------------------

class Archive:
    """A cpio archive in the kernel's "newc" form."""

    def __init__(self):
        self.parts, self.known, self.inode = [], set(), 0

    def _entry(self, name, mode, data=b''):
        self.inode += 1
        text = name.encode() + b'\0'
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(text), 0)
        header = b'070701' + b''.join(b'%08X' % f for f in fields) + text
        self.parts += [header, bytes(-len(header) % 4), data, bytes(-len(data) % 4)]

    def folder(self, name):
        parent = os.path.dirname(name)
        if parent:
            self.folder(parent)
        if name not in self.known:
            self.known.add(name)
            self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        self.folder(os.path.dirname(name)) if os.path.dirname(name) else None
        self._entry(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def bytes(self):
        self._entry('TRAILER!!!', 0)
        return b''.join(self.parts)


def initramfs(kernel, more):
    archive = Archive()
    for name in FOLDERS:
        archive.folder(name)
    for name, target in {'bin': 'usr/bin', 'sbin': 'usr/bin', 'lib': 'usr/lib', 'usr/sbin': 'bin'}.items():
        archive.link(name, target)
    for name, path in user_space(more).items():
        name = 'usr/' + name if name.startswith('lib/') else name
        archive.file(name, pathlib.Path(path).read_bytes())
    for applet in run('busybox', '--list').split():
        if applet not in PROGRAMS + ['busybox', 'sh', 'ash']:
            archive.link(f'usr/bin/{applet}', 'busybox')
    archive.link('usr/bin/sh', 'dash')
    order, boot = modules(kernel)
    for name, path in order.items():
        archive.file(f'modules/{name}.ko', path.read_bytes(), 0o644)
    archive.file('modules/boot', '\n'.join(boot).encode() + b'\n', 0o644)
    archive.file('modules/later', '\n'.join(n for n in order if n not in boot).encode() + b'\n', 0o644)
    archive.file('init', (HERE / 'guest_init.sh').read_bytes())
    archive.file('usr/bin/agent', (HERE / 'guest_agent.sh').read_bytes())
    archive.file('etc/passwd', b'root:x:0:0:root:/root:/bin/sh\n', 0o644)
    archive.file('etc/group', b'root:x:0:\n', 0o644)
    archive.file('etc/hosts', b'127.0.0.1 localhost\n', 0o644)
    archive.file('etc/nsswitch.conf', b'hosts: files\nprotocols: files\nservices: files\n', 0o644)
    return gzip.compress(archive.bytes(), 1)


def build(folder, *more):
    """Builds what is not built yet, or out of date; (kernel, initramfs). `more`: further programs that the guest gets."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kernel, image = folder / 'vmlinux', folder / 'initramfs.gz'
    sources = [pathlib.Path(__file__), HERE / 'guest_init.sh', HERE / 'guest_agent.sh', *map(pathlib.Path, more)]
    if kernel.exists() and image.exists() and image.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return kernel, image
    place = unpack_kernel(folder)
    kernel.write_bytes(uncompressed(next(place.glob('boot/vmlinuz-*')).read_bytes()))
    image.write_bytes(initramfs(place, more))
    return kernel, image


if __name__ == '__main__':
    for made in build(*(sys.argv[1:] or ['build/rxe-guest'])):
        print(made, made.stat().st_size >> 20, 'MiB')
