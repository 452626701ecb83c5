"""`roci view`: programs in a container that may not mount anything find rocid's devices. The container is made of a mount namespace and of a
process without capabilities, with no_new_privs, and with another user than rocid's."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import lab
import lacks
from lab import Failure

OPEN_TO_ALL = ['--set', 'rocid.socket_mode=0o666', '--set', 'memory.mbufs=4096']
# Mounts the view as a container engine would do, then drops all rights. $1 is the view, $2 an empty folder.
CONTAINER = '''set -e
mount -t tmpfs none "$2"
mkdir "$2/dev" "$2/dev/infiniband" "$2/dev/shm"
for name in null zero urandom; do : >"$2/dev/$name"; mount --bind /dev/$name "$2/dev/$name"; done
mount -t tmpfs -o mode=1777 none "$2/dev/shm"
mount --bind "$1/dev/infiniband" "$2/dev/infiniband"
mount --rbind "$2/dev" /dev
mount --bind "$1/sys/class" /sys/class
for place in /sys/class /dev/infiniband; do mount -o remount,bind,ro $place; done
shift 2
exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
'''
PYVERBS = 'import pyverbs.device as d; print([x.name.decode() for x in d.get_device_list()]); print(d.Context(name="roci1").query_port(1).state)'


def missing():
    if why := lacks.missing():
        return why
    tools = [tool for tool in ('setpriv', 'unshare', 'ucx_info', 'fi_info', 'ib_write_bw') if not shutil.which(tool)]
    return f'{", ".join(tools)} not installed' if tools else None


def roci(*words):
    return subprocess.run([str(lab.ROCI), *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


class Container:
    """A rocid that every user may use, its view, and programs that see nothing but this view."""

    def __enter__(self):
        self.rocid = lab.Rocid(args=OPEN_TO_ALL).__enter__()
        self.folder = pathlib.Path(self.rocid.folder.name)
        self.folder.chmod(0o755)
        (self.folder / 'empty').mkdir()
        self.view = self.folder / 'view'
        done = roci('view', self.view, '--socket', self.rocid.socket)
        if done.returncode != 0 or f'-v {self.view}/sys/class:/sys/class:ro' not in done.stdout:
            self.rocid.__exit__()
            raise Failure(f'roci view: {done.returncode}\n{done.stdout}{done.stderr}')
        return self

    def __exit__(self, *_):
        self.rocid.__exit__()

    def start(self, *words):
        command = ['unshare', '--mount', 'sh', '-c', CONTAINER, 'sh', self.view, self.folder / 'empty', *words]
        variables = {'PATH': os.environ['PATH'], 'ROCI_SOCKET': self.rocid.socket, 'LD_LIBRARY_PATH': f'{self.view}/lib', 'HOME': '/tmp'}
        return subprocess.Popen([str(w) for w in command], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, cwd='/')

    def finish(self, process, wanted=''):
        try:
            said = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f'{shlex.join(process.args[7:])} hangs') from None
        if process.returncode != 0 or not re.search(wanted, said, re.M):
            raise Failure(f'{shlex.join(process.args[7:])}: {process.returncode}, wanted /{wanted}/\n{said[-2000:]}')
        return said

    def must(self, wanted, *words):
        return self.finish(self.start(*words), wanted)


def programs_find_devices():
    with Container() as inside:
        inside.must(r'^CapBnd:\s+0+$', 'cat', '/proc/self/status')
        inside.must(r'^roci1$', 'ls', '/sys/class/infiniband')
        inside.must(r'Read-only', 'sh', '-c', 'touch /sys/class/infiniband/mine 2>&1; touch /dev/infiniband/mine 2>&1 || true')
        inside.must(r'^lo$', 'ls', '/sys/class/net/')
        inside.must(r'hca_id:\s+roci1', 'ibv_devinfo')
        inside.must(r"\['roci0', 'roci1'\]\n4", '/usr/bin/python3', '-c', PYVERBS)
        said = inside.must(r'Transport: rc_verbs', 'ucx_info', '-d')
        for transport in ('rc_verbs', 'ud_verbs'):
            for device in ('roci0:1', 'roci1:1'):
                if not re.search(rf'Transport: {transport}\n#\s+Device: {device}', said):
                    raise Failure(f'UCX has no {transport} on {device}:\n{said[-2000:]}')
        inside.must(r'provider: verbs', 'fi_info', '-p', 'verbs')


def programs_move_data():
    with Container() as inside:
        port = lab.free_port()
        words = ['ib_write_bw', '-x', '1', '-F', '-n', '500', '-p', port]
        server = inside.start(*words, '-d', 'roci0')
        end = time.monotonic() + 30
        while port not in lab.listening_ports() and server.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        try:
            inside.must(r'^ 65536 ', *words, '-d', 'roci1', '127.0.0.1')
        finally:
            inside.finish(server)


def wait_for(come, what):
    end = time.monotonic() + 30
    while not come():
        if time.monotonic() > end:
            raise Failure(f'no sign of {what}')
        time.sleep(0.05)


def number_in(path):
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def watch_follows():
    """With --watch, the counters of the view grow. After a restart of rocid they start at 0. SIGTERM ends the command."""
    with tempfile.TemporaryDirectory(prefix='roci-view-') as name:
        view = pathlib.Path(name, 'view')
        packets = view / 'sys/class/infiniband/roci0/ports/1/counters/port_xmit_packets'
        watcher = None
        command = [str(lab.ROCID), '--loopback', '--socket', f'{name}/rocid.sock', '--set', 'memory.mbufs=1024']
        rocid, _ = lab.begin(command, f'{name}/log')
        try:
            watcher = subprocess.Popen([str(lab.ROCI), 'view', str(view), '--watch', '--socket', f'{name}/rocid.sock'], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            wait_for(lambda: number_in(packets) == 0, 'the view')
            with_traffic(f'{name}/rocid.sock')
            wait_for(lambda: number_in(packets) > 0, 'counted packets in the view')
            lab.finish(rocid)
            rocid, _ = lab.begin(command, f'{name}/log')
            wait_for(lambda: number_in(packets) == 0, 'counters of the new rocid')
            watcher.terminate()
            if watcher.wait(20) != 0:
                raise Failure(f'roci view --watch: {watcher.returncode} {watcher.stderr.read()}')
        finally:
            if watcher and watcher.poll() is None:
                watcher.kill()
                watcher.wait()
            lab.finish(rocid)


def with_traffic(socket):
    port = lab.free_port()
    words = [str(lab.ROCI), 'run', '--socket', socket, '--', 'ibv_rc_pingpong', '-g', '1', '-n', '10', '-p', str(port)]
    server = subprocess.Popen([*words, '-d', 'roci0'], stdout=subprocess.DEVNULL)
    wait_for(lambda: port in lab.listening_ports() or server.poll() is not None, 'the server')
    client = subprocess.run([*words, '-d', 'roci1', '127.0.0.1'], stdout=subprocess.DEVNULL, timeout=60, check=False)
    if client.returncode != 0 or server.wait(60) != 0:
        raise Failure('the pingpong failed')


PRELOADED = '''set -e
cd /
cat /sys/class/infiniband/roci0/ports/1/state
ls /sys/class/infiniband
test -c /dev/infiniband/roci1
ls /sys/class/net
stat -L -c %F /sys/class/infiniband/roci0/device
cat /sys/class/infiniband_verbs/none 2>&1 || true
/usr/bin/python3 - <<END
import glob, os
print(os.path.realpath('/sys/class/infiniband/roci0'), os.environ['ROCI_VIEW'])
print(sorted(os.listdir('/sys/class/infiniband')), os.access('/sys/class/infiniband/roci1', os.R_OK))
print(glob.glob('/sys/class/infiniband/roci*/ports/1/rate'))
os.chdir('/sys/class')
classes = os.open('.', os.O_RDONLY)
print(open('infiniband/roci0/node_type').read(), os.read(os.open('infiniband/roci1/node_type', os.O_RDONLY, dir_fd=classes), 9), os.listdir('infiniband/roci0/ports'))
import ctypes
class Glob(ctypes.Structure):
    _fields_ = [('count', ctypes.c_size_t), ('paths', ctypes.POINTER(ctypes.c_char_p)), ('offset', ctypes.c_size_t), ('flags', ctypes.c_int), ('functions', ctypes.c_void_p * 5)]
found = Glob()
print(ctypes.CDLL(None).glob(b'/sys/class/infiniband/*/ports/*/state', 0, None, ctypes.byref(found)), found.paths[:found.count])
END
ucx_info -d
'''


def without_namespaces():
    """Where no namespace can be made, `roci run` preloads a library that shows the view. Nothing is left after the program."""
    with tempfile.TemporaryDirectory(prefix='roci-view-') as runtime, lab.Rocid(args=OPEN_TO_ALL) as rocid:
        variables = os.environ | {'XDG_RUNTIME_DIR': runtime}
        done = subprocess.run(rocid.command_of(['sh', '-c', PRELOADED]), capture_output=True, text=True, timeout=120, check=False, env=variables,
                              preexec_fn=lambda: lacks.refuse(lacks.UNSHARE))
        for wanted in (r'^4: ACTIVE\nroci0\nroci1$', r'^lo$', r'^directory$', r'infiniband_verbs/none: No such file', r'^/sys/class/infiniband/roci0 \S+/rocinante/view-\w+$',
                       r"^\['roci0', 'roci1'\] True$", r"'/sys/class/infiniband/roci1/ports/1/rate'",
                       r"^1: CA\n b'1: CA\\n' \['1'\]$", r"^0 \[b'/sys/class/infiniband/roci0/ports/1/state', b'/sys/class/infiniband/roci1/ports/1/state'\]$", r'Transport: rc_verbs\n#\s+Device: roci1:1'):
            if not re.search(wanted, done.stdout, re.M):
                raise Failure(f'no /{wanted}/ in:\n{done.stdout[:3000]}{done.stderr}')
        if done.returncode != 0 or done.stderr:
            raise Failure(f'{done.returncode}\n{done.stderr}')
        wait_for(lambda: not list(pathlib.Path(runtime).glob('rocinante/view-*')), 'the removal of the view')


# A process that outlives the program that `roci run` has started. After the end of that program it reads the view for 2 s. If the
# view ended with the program, the view would be removed at once and the read would fail. $1 is a file for the result.
CHILD = '''{
    while kill -0 $$ 2>/dev/null; do :; done
    for n in $(seq 40); do sleep 0.05; cat /sys/class/infiniband/roci1/node_type || exit; done >/dev/null
    echo seen >"$1"
} 2>"$1" &
'''


def view_of_children():
    """The preloaded view stays until the last process that uses it has ended."""
    with tempfile.TemporaryDirectory(prefix='roci-view-') as runtime, lab.Rocid(args=OPEN_TO_ALL) as rocid:
        result = pathlib.Path(runtime, 'result')
        done = subprocess.run(rocid.command_of(['sh', '-c', CHILD, 'sh', str(result)]), timeout=60, check=False, env=os.environ | {'XDG_RUNTIME_DIR': runtime},
                              preexec_fn=lambda: lacks.refuse(lacks.UNSHARE))
        if done.returncode != 0:
            raise Failure(f'{done.returncode}')
        wait_for(lambda: result.exists() and result.read_text(), 'the end of the child')
        if result.read_text() != 'seen\n':
            raise Failure(result.read_text())
        wait_for(lambda: not list(pathlib.Path(runtime).glob('rocinante/view-*')), 'the removal of the view')


def bad_folders(rocid):
    with tempfile.TemporaryDirectory(prefix='roci-view-') as name:
        file = pathlib.Path(name, 'file')
        file.write_text('mine')
        for words, reason in (([name], 'not a view'), ([file], 'Not a directory'), (['/proc/view'], 'No such file'), (['/'], 'not a view'),
                              ([f'{name}/new', '--cdi', f'{name}/none/cdi.json'], 'No such file')):
            done = roci('view', *words, '--socket', rocid.socket)
            if done.returncode != 1 or reason not in done.stderr or len(done.stderr.splitlines()) != 1:
                raise Failure(f'roci view {words}: {done.returncode}\n{done.stderr}')
        done = roci('view', f'{name}/new', '--socket', f'{name}/none.sock')
        if done.returncode != 1 or 'is rocid running there?' not in done.stderr:
            raise Failure(f'without rocid: {done.returncode}\n{done.stderr}')
        if file.read_text() != 'mine':
            raise Failure('a file of the user has changed')


CASES = {'roci view refuses folders that are not its own': bad_folders}
IN_CONTAINER = {
    'roci view: ibv_devinfo, UCX, libfabric and pyverbs find devices without any right': programs_find_devices,
    'roci view: ib_write_bw between two programs without any right': programs_move_data,
    'roci run without namespaces: UCX finds devices by a preloaded library': without_namespaces,
    'roci run without namespaces: the view stays for the children of the program': view_of_children,
    'roci view --watch follows rocid': watch_follows,
}
