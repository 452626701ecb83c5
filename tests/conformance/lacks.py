"""Machines and containers that lack something: rocid and roci print one line with a remedy and end with an exit code."""
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import tempfile

import lab
from ephemeral import can_run_as

USER = 4321  # a user without other processes, because RLIMIT_NPROC counts all processes of a user
MOST_THREADS = 12
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
MEMFD_CREATE = {'x86_64': 319, 'aarch64': 279}
UNSHARE = {'x86_64': 272, 'aarch64': 97}


class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('rows', ctypes.c_char_p)]


def refuse(numbers):
    """Refuses a system call with EPERM in this process, as profiles of container engines do."""
    number = numbers[os.uname().machine]
    rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 1), (0x06, 0, 0, 0x7fff0000)]  # load nr; equal?; EPERM; allow
    code = b''.join(struct.pack('=HBBI', *row) for row in rows)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Filter(len(rows), code)), 0, 0):
        raise OSError(ctypes.get_errno(), 'seccomp')


def said_by(command, **options):
    done = subprocess.run([str(w) for w in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=lab.START_LIMIT, check=False, cwd='/', **options)
    return done.returncode, done.stdout


def one_line(outcome, code, words):
    if outcome[0] != code or len(outcome[1].splitlines()) != 1 or not re.search(words, outcome[1]):
        raise lab.Failure(f'one line with /{words}/ and exit code {code} wanted:\n{outcome[0]}\n{outcome[1][-2000:]}')


def rocid(folder):
    return [lab.ROCID, '--loopback', '--socket', f'{folder}/rocid.sock', '--set', 'memory.mbufs=1024', '--exit-when-idle', '1']


def in_mounts(script, command):
    """Returns a command that runs `command` in a mount namespace after the shell script."""
    return ['unshare', '--mount', 'sh', '-c', f'set -e; {script}; exec "$@"', 'sh', *command]


def empty(folder):
    left = os.listdir(folder)
    if left:
        raise lab.Failure(f'left behind: {left}')


def no_sys():
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        one_line(said_by(in_mounts('mount -t tmpfs none /sys', rocid(folder))), 1, 'mount -t sysfs')
        empty(folder)


def no_proc():
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        roci = [lab.ROCI, 'run', '--socket', f'{folder}/none', '--', 'true']
        one_line(said_by(in_mounts('mount -t tmpfs none /proc', roci)), 125, 'mount -t proc')


def no_proc_for_program():
    """A program in a container without /proc. The client library cannot find out what the memory that it registers consists of."""
    with lab.Rocid(args=['--set', 'memory.mbufs=1024']) as rocid:
        environment = os.environ | {'ROCI_SOCKET': rocid.socket, 'LD_LIBRARY_PATH': str(lab.BUILD / 'verbs_api/libibverbs')}
        code, said = said_by(in_mounts('mount -t tmpfs none /proc', ['ibv_rc_pingpong', '-d', 'roci0', '-g', '1']), env=environment)
        if code != 1 or not re.search('registered: .*mount -t proc proc /proc', said):
            raise lab.Failure(f'{code}\n{said}')


def no_memfd():
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        one_line(said_by(rocid(folder), preexec_fn=lambda: refuse(MEMFD_CREATE)), 1, 'memfd_create .*Operation not permitted.*seccomp')
        empty(folder)


def no_plugin():
    """The folder of DPDK's plugins has all plugins except that of the buffers' rings."""
    plugins = next(pathlib.Path('/usr/lib').glob('*/dpdk/pmds-*'))
    hide = f'mount --bind {plugins} /mnt; mount -t tmpfs -o mode=755 none {plugins}; ln -s /mnt/*.so* {plugins}/; rm {plugins}/librte_mempool_ring.so*'
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        outcome = said_by(in_mounts(hide, rocid(folder)))
    one_line(outcome, 1, 'librte_mempool_ring is missing: apt-get install')


def mount_of_build():
    """Returns the outermost mount other than / that contains the build, or None."""
    mounts = {line.split()[4] for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines()} - {'/'}
    above = [p for p in lab.ROCID.resolve().parents if str(p) in mounts]
    return above[-1] if above else None


def read_only_root():
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        read_only = f'mount --bind / {folder}; mount -o remount,bind,ro {folder}; mount --rbind /proc {folder}/proc; mount --rbind /sys {folder}/sys; ' \
                    f'mount --rbind /dev {folder}/dev; mount -t tmpfs none {folder}/run; ' \
                    f'{f"mount --rbind {build} {folder}{build}; " if (build := mount_of_build()) else ""}cd {folder}; pivot_root . mnt; cd /'
        one_line(said_by(in_mounts(read_only, rocid('/var/tmp'))), 1, 'Read-only file system.*--socket PATH')
        code, said = said_by(in_mounts(read_only, rocid('/run')))
        if code != 0 or 'serving roci0' not in said:
            raise lab.Failure(f'with the socket in a tmpfs: {code}\n{said}')
        environment = {k: v for k, v in os.environ.items() if k not in ('ROCI_SOCKET', 'XDG_RUNTIME_DIR')}
        one_line(said_by(in_mounts(read_only, [lab.ROCI, 'run', '--', 'true']), env=environment), 125, 'Read-only file system')


def few_threads():
    """rocid prints one line if it may start too few threads, whatever their number. MOST_THREADS are enough."""
    with tempfile.TemporaryDirectory(prefix='roci-lacks-') as folder:
        os.chmod(folder, 0o777)
        limited = ['setpriv', '--reuid', USER, '--regid', USER, '--clear-groups', 'prlimit']
        for limit in range(1, MOST_THREADS + 1):
            outcome = said_by([*limited, f'--nproc={limit}', *rocid(folder)])
            if outcome[0] == 0 and limit > 1:
                break
            one_line(outcome, 1, r'only \d+ of \d+ threads can be started: raise the limit')
        else:
            raise lab.Failure(f'{MOST_THREADS} threads are not enough')
        empty(folder)


def missing():
    if os.geteuid() != 0:
        return 'needs root'
    tried = subprocess.run(in_mounts('mount -t tmpfs none /mnt', ['true']), capture_output=True, text=True, check=False)
    return f'nothing can be mounted here: {tried.stderr.strip()}' if tried.returncode != 0 else None


def missing_user():
    if os.geteuid() != 0:
        return 'needs root'
    return None if can_run_as(USER) else 'other users cannot execute the build'


CASES = {
    'start: without /sys': no_sys,
    'roci run: without /proc': no_proc,
    'registration: without /proc': no_proc_for_program,
    'start: without memfd_create': no_memfd,
    "start: without DPDK's plugin for buffers": no_plugin,
    'start: on a read-only root': read_only_root,
}
AS_USER = {'start: with few threads allowed': few_threads}
