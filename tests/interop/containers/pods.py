"""Two podman containers that one veth pair connects. Each has its own root file system, a user without capabilities,
and the default seccomp profile."""
import contextlib
import glob
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get('ROCI_BUILD', REPO / os.environ.get('BUILD', 'build'))).resolve()
sys.path += [str(REPO / 'tests/interop' / folder) for folder in ('guest', 'hosts', 'nic')]
import hosts  # noqa: E402
import image  # noqa: E402
import machine  # noqa: E402
from output_file import OutputFile  # noqa: E402

LIB = 'usr/lib/x86_64-linux-gnu'
PROGRAMS = ('ibv_devinfo', 'ibv_rc_pingpong', 'ib_write_bw', 'ib_read_bw', 'ib_send_lat', 'rping', 'ucx_perftest', 'ucx_info', 'fi_info')
OURS = {'usr/bin/roci': 'apps/roci/roci', 'usr/bin/rocid': 'apps/rocid/rocid',
        f'{LIB}/rocinante/libibverbs.so.1': 'verbs_api/libibverbs/libibverbs.so.1',
        f'{LIB}/rocinante/librdmacm.so.1': 'verbs_api/librdmacm/librdmacm.so.1'}
OLD_GLIBC = ('libpthread.so.0', 'libdl.so.2')  # parts of older releases of glibc, which every distribution has and which our libraries name
TEXTS = {**image.TEXTS, 'etc/passwd': 'user:x:1000:1000::/tmp:/bin/sh\n', 'etc/group': 'user:x:1000:\n'}
# podman needs a mounted cgroup v2. The mount is made in a separate mount namespace, so the mounts of the machine do
# not change. If $1 is a folder, podman finds the files of $1/upper in /etc.
PODMAN = 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; etc=$1; shift; ' \
         '[ -z "$etc" ] || mount -t overlay -o "lowerdir=/etc,upperdir=$etc/upper,workdir=$etc/work" none /etc; exec "$@"'
LIMITS = ('nofile=1024:1024', 'nproc=1024:1024')


def why_not():
    """Returns what this machine needs to run the containers but does not have, or ''."""
    for tool in ('podman', 'crun', 'busybox', 'ucx_perftest', 'rping', 'fi_info'):
        if not shutil.which(tool):
            return f'{tool} is not installed (apt-get install podman crun busybox-static ucx-utils)'
    return hosts.why_not() or podman_refuses()


def ulimits():
    return [word for limit in LIMITS for word in ('--ulimit', limit)]


def podman_refuses():
    """Returns the message of podman if this machine cannot run even a container that contains only /bin/true, or ''."""
    with tempfile.TemporaryDirectory(prefix='roci-trial-') as root:
        pathlib.Path(root, 'bin').mkdir()
        shutil.copy(shutil.which('busybox'), pathlib.Path(root, 'bin/true'))
        trial = ['podman', 'run', '--rm', '--rootfs', '--cgroups=disabled', '--runtime', 'crun', *ulimits(), '--network', 'none', root, '/bin/true']
        try:
            done = subprocess.run(['unshare', '--mount', 'sh', '-c', PODMAN, 'sh', '', *trial], capture_output=True, text=True, check=False, timeout=60)
        except subprocess.TimeoutExpired:
            return 'podman did not end a container within 60 s'
    return f'podman runs no container here: {done.stderr[-300:]}' if done.returncode != 0 else ''


def make_root(folder, ours=True):
    """Makes a root file system from files of this machine: programs, their libraries, and with `ours` Rocinante's build."""
    files = {name: str(BUILD / path) for name, path in OURS.items()} if ours else {f'{LIB}/{name}': f'/{LIB}/{name}' for name in OLD_GLIBC}
    files |= {path.lstrip('/'): path for path in glob.glob(f'/{LIB}/ucx/*.so*')}
    drivers, links = machine.plugins() if ours else ({}, {})
    contents = image.Contents('container', pathlib.Path('/'), PROGRAMS, files | drivers)
    for name in ('proc', 'sys', 'dev', 'tmp', 'run', 'etc', 'usr/bin', 'usr/lib', 'usr/lib64'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, target in image.LINKS.items():
        (folder / name).symlink_to(target)
    for name, path in image.user_space(contents).items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(image.without_symbols(path))
        to.chmod(0o755)
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    for name in ('sh', 'cat', 'grep', 'id', 'sleep', 'env', 'ls'):
        if not (folder / 'usr/bin' / name).exists():
            (folder / 'usr/bin' / name).symlink_to('busybox')
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    for place in (folder, *(p for p in folder.rglob('*') if p.is_dir() and not p.is_symlink())):
        place.chmod(0o1777 if place.name == 'tmp' else 0o755)


class Pod:
    """A container with a shell. The shell executes one command after the other. If `group` is not None, the processes of
    the container are in this control group (memory_cases.Group)."""

    def __init__(self, namespace, address, root, *options, etc='', user=1000, group=None):
        self.address, self.namespace = address, namespace
        self.output = OutputFile()
        podman = ['podman', 'run', '-i', '--rm', '--rootfs', '--cgroups=disabled', '--runtime', 'crun', *ulimits(), '--cap-drop=ALL',
                  '--security-opt', 'no-new-privileges', '--user', f'{user}:{user}', '--env', 'HOME=/tmp', '--env', 'XDG_RUNTIME_DIR=/tmp',
                  '--network', f'ns:/run/netns/{namespace}', *map(str, options), str(root), '/bin/sh']
        command = ['unshare', '--mount', 'sh', '-c', PODMAN, 'sh', str(etc), *podman]
        self.process = subprocess.Popen(group.command(command) if group else command, stdin=subprocess.PIPE, stdout=self.output, stderr=subprocess.STDOUT,
                                        text=True)
        self.number = itertools.count(1)

    def said(self):
        return self.output.text()

    def start(self, command):
        """Starts a command. Returns the number of the command, which wait() needs."""
        number = next(self.number)
        self.process.stdin.write(f'echo "begin {number} "; {command} </dev/null 2>&1; echo "end {number} $?"\n')
        self.process.stdin.flush()
        return number

    def wait(self, number, limit=60):
        """Waits for the end of the command with this number. Returns (status, output)."""
        end = time.monotonic() + limit
        while f'\nend {number} ' not in (text := self.said()) or not text.endswith('\n'):
            if self.process.poll() is not None or time.monotonic() > end:
                raise hosts.Failure(f'no end of command {number}:\n{text[-2000:]}')
            time.sleep(0.05)
        own = text.split(f'begin {number} \n', 1)[1]
        output, status = own.split(f'end {number} ', 1)
        return int(status.split()[0]), output

    def must(self, command, limit=60):
        status, output = self.wait(self.start(command), limit)
        if status != 0:
            raise hosts.Failure(f'{command} returned {status}:\n{output[-2000:]}')
        return output

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pods:
    """Two containers that a veth pair connects. Use in a `with` statement."""

    def __init__(self):
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix='roci-pods-')))
            folder.chmod(0o755)
            net = self.stack.enter_context(hosts.Network(1500, judged=False))
            self.pods = []
            for host in (net.a, net.b):
                root = folder / f'root{host.number}'
                make_root(root)
                pod = Pod(host.namespace, host.ipv4, root)
                self.stack.callback(pod.close)
                self.pods.append(pod)
            self.net, self.left, self.right = net, *self.pods
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def pair(self, server, client, port, limit=60):
        """Runs a server in the left container and its client in the right container. Both must return 0. Returns the
        output of the client."""
        begun = self.left.start(server)
        if port:
            self.net.wait(lambda: f':{port}' in self.net.a.sh('ss -ltnH') or f'\nend {begun} ' in self.left.said(), f'{server} does not listen')
        else:
            time.sleep(1)  # from outside the container, a listening rdma_cm id cannot be detected
        status, output = self.right.wait(self.right.start(client), limit)
        if status != 0:
            raise hosts.Failure(f'{client} returned {status}:\n{output[-1500:]}\nthe server:\n{self.left.said()[-1500:]}')
        status, served = self.left.wait(begun, limit)
        if status != 0:
            raise hosts.Failure(f'{server} returned {status}:\n{served[-1500:]}')
        return output
