"""Builds a guest: Debian's kernel, and an initramfs with programs of this machine.

It needs no root. The kernel package is downloaded and unpacked, but not installed. Programs and their libraries are copied from this machine.
"""
import dataclasses
import gzip
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMON_PROGRAMS = ('ip', 'ss', 'dash')
COMMON_MODULES = ('virtio_pci', 'virtio_console')
LIBGCC = '/usr/lib/x86_64-linux-gnu/libgcc_s.so.1'  # pthread_exit loads it
FOLDERS = ['proc', 'sys', 'dev', 'run', 'tmp', 'root', 'etc', 'usr', 'usr/bin', 'usr/lib', 'modules']
LINKS = {'bin': 'usr/bin', 'sbin': 'usr/bin', 'lib': 'usr/lib', 'lib64': 'usr/lib64', 'usr/sbin': 'bin'}
TEXTS = {'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\n', 'etc/group': 'root:x:0:\n', 'etc/hosts': '127.0.0.1 localhost\n',
         'etc/nsswitch.conf': 'hosts: files\nprotocols: files\nservices: files\n'}


class CannotBuild(Exception):
    """This machine lacks something that the build of a guest needs."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The content of a guest in addition to the files that all guests have."""
    name: str  # name of the archive
    init: pathlib.Path  # first process of the guest
    programs: tuple = ()  # names of programs; they are searched for in this machine's program folders
    files: dict = dataclasses.field(default_factory=dict)  # {path in the guest: path on this machine}; the libraries of these files are added
    texts: dict = dataclasses.field(default_factory=dict)  # {path in the guest: content}
    links: dict = dataclasses.field(default_factory=dict)
    boot_modules: tuple = ()  # kernel modules that the guest loads at boot; the modules on which they depend are added
    later_modules: tuple = ()  # kernel modules that the guest loads later

    def sources(self):
        return [self.init, *map(pathlib.Path, self.files.values()), *HERE.glob('*.*')]


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
    (folder / 'vmlinux').write_bytes(uncompressed(next(place.glob('boot/vmlinuz-*')).read_bytes()))
    (place / 'done').touch()
    return place


def uncompressed(vmlinuz):
    """Extracts the ELF kernel, which QEMU can boot directly. The emulated CPU would need seconds to decompress the
    kernel."""
    at = vmlinuz.find(b'\xfd7zXZ\x00')
    image = lzma.LZMADecompressor().decompress(vmlinuz[at:]) if at >= 0 else b''
    if not image.startswith(b'\x7fELF'):
        raise CannotBuild('the kernel is not packed with xz')
    return image


def module_facts(path):
    found = re.search(rb'\0depends=([^\0]*)\0', path.read_bytes())
    return [d for d in found.group(1).decode().split(',') if d] if found else []


def modules(kernel, boot_names, later_names):
    """Returns {name: path} of the wanted modules and of the modules on which they depend, in the order of loading.
    Also returns the names of the modules to load at boot."""
    paths = {p.stem.replace('-', '_'): p for p in kernel.glob('lib/modules/**/*.ko')}
    order = {}

    def visit(name):
        name = name.replace('-', '_')
        if name in order or name not in paths:  # a module without a file is built into the kernel
            return
        for needed in module_facts(paths[name]):
            visit(needed)
        order[name] = paths[name]
    for name in boot_names:
        visit(name)
    boot = list(order)
    for name in later_names:
        visit(name)
    return order, boot


# ---- programs ---------------------------------------------------------------------------------------------------------

def is_elf(path):
    with open(path, 'rb') as file:
        return file.read(4) == b'\x7fELF'


def libraries(binary):
    return set(re.findall(r'(/\S+) \(0x', subprocess.run(['ldd', binary], capture_output=True, text=True, check=False).stdout))


def user_space(contents):
    """Returns {path in the guest: path on this machine} of all programs, files and libraries."""
    files = {}
    for name in (*COMMON_PROGRAMS, *contents.programs):
        found = shutil.which(name, path='/usr/bin:/usr/sbin:/bin:/sbin')
        if not found:
            raise CannotBuild(f'{name} is not installed (./dev setup)')
        files[f'usr/bin/{name}'] = found
    files |= contents.files
    files[LIBGCC.lstrip('/')] = LIBGCC
    for binary in list(files.values()):
        if is_elf(binary):
            files.update({lib.lstrip('/'): lib for lib in libraries(binary) if lib.startswith(('/usr/', '/lib'))})  # no Rocinante libraries, which are in `files` already
    busybox = shutil.which('busybox')
    if not busybox or 'not a dynamic executable' not in subprocess.run(['ldd', busybox], capture_output=True, text=True, check=False).stderr:
        raise CannotBuild('busybox-static is not installed (./dev setup)')
    files['usr/bin/busybox'] = busybox
    return {in_usr(name): path for name, path in files.items()}


def in_usr(name):
    """If a path begins with a link of LINKS, replaces the link by its target."""
    for link, target in sorted(LINKS.items(), key=lambda l: -len(l[0])):
        if name.startswith(link + '/'):
            return os.path.normpath(os.path.join(os.path.dirname(link), target, name[len(link) + 1:]))
    return name


def without_symbols(path):
    """Returns the content of a file. If the file is a large program, removes its debug information."""
    data = pathlib.Path(path).read_bytes()
    if not data.startswith(b'\x7fELF') or len(data) < 1 << 20 or b'.debug_info' not in data:
        return data
    with tempfile.NamedTemporaryFile() as small:
        run('objcopy', '--strip-debug', str(path), small.name)
        return pathlib.Path(small.name).read_bytes()


# ---- the archive ------------------------------------------------------------------------------------------------------

class Archive:
    """A cpio archive in the kernel's "newc" format."""

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
        self.folder(os.path.dirname(name)) if os.path.dirname(name) else None
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def bytes(self):
        self._entry('TRAILER!!!', 0)
        return b''.join(self.parts)


def initramfs(kernel, contents):
    archive = Archive()
    for name in FOLDERS:
        archive.folder(name)
    for name, target in {**LINKS, **contents.links}.items():
        archive.link(name, target)
    files = user_space(contents)
    for name, path in files.items():
        archive.file(name, without_symbols(path), stat.S_IMODE(os.stat(path).st_mode) | 0o444)
    for applet in run('busybox', '--list').split():
        if f'usr/bin/{applet}' not in files and applet not in ('sh', 'ash'):
            archive.link(f'usr/bin/{applet}', 'busybox')
    archive.link('usr/bin/sh', 'dash')
    order, boot = modules(kernel, (*COMMON_MODULES, *contents.boot_modules), contents.later_modules)
    for name, path in order.items():
        archive.file(f'modules/{name}.ko', path.read_bytes(), 0o644)
    lists = {'modules/boot': boot, 'modules/later': [n for n in order if n not in boot]}
    for name, text in {**TEXTS, **contents.texts, **{n: '\n'.join(names) + '\n' for n, names in lists.items()}}.items():
        archive.file(name, text.encode(), 0o644)
    archive.file('init', contents.init.read_bytes())
    archive.file('usr/bin/agent', (HERE / 'agent.sh').read_bytes())
    archive.file('usr/lib/guest/base.sh', (HERE / 'base.sh').read_bytes(), 0o644)
    return gzip.compress(archive.bytes(), 1)


def build(folder, contents):
    """Builds the parts that are missing or outdated. Returns the paths (kernel, initramfs)."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kernel, image, made_of = folder / 'vmlinux', folder / f'{contents.name}.gz', folder / f'{contents.name}.contents'
    same = all(p.exists() for p in (kernel, image, made_of)) and made_of.read_text() == repr(contents)
    if same and image.stat().st_mtime > max(s.stat().st_mtime for s in contents.sources()):
        return kernel, image
    place = unpack_kernel(folder)
    image.write_bytes(initramfs(place, contents))
    made_of.write_text(repr(contents))
    return kernel, image
