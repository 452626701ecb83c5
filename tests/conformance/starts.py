"""Starts of rocid: alone, while other rocids run, and under a service manager. Also the choice of the CRC kernel."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import ephemeral
import lab
import pairs


def engines_on_ordinary_pages():
    """Without hugepages, the memory that rocid requests must be large enough for the frames of all engines."""
    for engines in (1, 2, 5, 16):
        with lab.Rocid(args=['--set', 'memory.hugepages=never', '--set', f'engine.count={engines}']) as rocid:
            if 'memory: ordinary pages' not in rocid.log():
                raise lab.Failure(rocid.log())


def log_of(process, path):
    """Waits until a rocid ends, and returns the content of its log. Raises Failure if the rocid does not end."""
    try:
        process.wait(lab.START_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise lab.Failure(f'two rocids run:\n{pathlib.Path(path).read_text()}') from None
    return pathlib.Path(path).read_text()


def two_at_once():
    """Two rocids start at the same time. Exactly one of them must serve, even if a killed rocid has left its socket
    file. The error message of the other rocid must contain the process id of the serving rocid."""
    with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder:
        command = [str(lab.ROCID), '--loopback', '--socket', f'{folder}/rocid.sock', '--set', 'memory.mbufs=1024']
        for _ in range(5):
            logs = [f'{folder}/{i}.log' for i in range(2)]
            both = []
            for log in logs:
                with open(log, 'wb') as file:
                    both.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file))
            try:
                ended = wait_for(lambda: [p for p in both if p.poll() is not None], 'either of the two to give up', logs)
                loser = both.index(ended[0])
                said, winner = log_of(both[loser], logs[loser]), both[1 - loser]
                if f'is taken by another rocid (process {winner.pid})' not in said or both[loser].returncode != 1:
                    raise lab.Failure(f'exit code {both[loser].returncode}:\n{said}')
                wait_for(lambda: 'serving' in pathlib.Path(logs[1 - loser]).read_text(), 'the other to serve', logs)
                if winner.poll() is not None:
                    raise lab.Failure('both gave up')
            finally:
                for process in both:
                    lab.finish(process, signal.SIGKILL)  # a killed rocid leaves its socket file
        with open(logs[0], 'wb') as file:
            last = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        wait_for(lambda: 'serving' in pathlib.Path(logs[0]).read_text(), 'a rocid in the place of a killed one', logs)
        if not lab.finish(last) or set(os.listdir(folder)) != {'0.log', '1.log'}:
            raise lab.Failure(f'left behind: {os.listdir(folder)}')


def wait_for(come, what, logs):
    end = time.monotonic() + lab.START_LIMIT
    while time.monotonic() < end:
        if done := come():
            return done
        time.sleep(0.01)
    raise lab.Failure(f'no sign of {what}:\n' + '\n'.join(pathlib.Path(log).read_text() for log in logs))


def beside_one_that_waits():
    """A virtio_user server treats its first connection as its peer. So a second rocid must not connect to the path of
    this server."""
    with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder:
        pathlib.Path(f'{folder}/rocid.toml').write_text(
            f'[memory]\nmbufs = 1024\n[[device]]\nname = "roci0"\nport = "virtio_user"\nrole = "server"\npath = "{folder}/virtio.sock"\n')

        def start(name):
            with open(f'{folder}/{name}.log', 'wb') as file:
                return subprocess.Popen([str(lab.ROCID), '--config', f'{folder}/rocid.toml', '--socket', f'{folder}/{name}.sock'],
                                        stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        first = start('a')
        second = None
        try:
            wait_for(lambda: os.path.exists(f'{folder}/virtio.sock'), 'the socket', [f'{folder}/a.log'])
            time.sleep(0.3)
            second = start('b')
            said = log_of(second, f'{folder}/b.log')
            if f'is taken by another rocid (process {first.pid})' not in said:
                raise lab.Failure(said)
            time.sleep(0.5)
            if first.poll() is not None or len(pathlib.Path(f'{folder}/a.log').read_text().splitlines()) > 1:
                raise lab.Failure('the first does not wait any more:\n' + pathlib.Path(f'{folder}/a.log').read_text())
        finally:
            for process in (first, second):
                lab.finish(process)


def tells_its_manager():
    """rocid must send READY when programs can find the devices, and STOPPING when it ends. NOTIFY_SOCKET is a path in
    the first run and an abstract name in the second run."""
    for abstract in (False, True):
        with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            name = f'{folder}/notify'
            manager.bind('\0' + name if abstract else name)
            manager.settimeout(lab.START_LIMIT)
            os.environ['NOTIFY_SOCKET'] = '@' + name if abstract else name
            try:
                with lab.Rocid() as rocid:
                    heard = [manager.recv(4096)]
                    if [d['state'] for d in rocid.status()['devices']] != ['active'] * 2:
                        raise lab.Failure('ready, but its devices are not active')
                    lab.finish(rocid.process)
                    heard.append(manager.recv(4096))
            finally:
                del os.environ['NOTIFY_SOCKET']
            if heard != [b'READY=1\nSTATUS=serving roci0, roci1', b'STOPPING=1']:
                raise lab.Failure(f'the manager heard {heard}')


def without_its_manager():
    """If the socket of the service manager does not exist, rocid must start, and must log that it could not notify
    the manager."""
    os.environ['NOTIFY_SOCKET'] = '/nonexistent/notify'
    try:
        with lab.Rocid() as rocid:
            if 'NOTIFY_SOCKET, /nonexistent/notify, is not told' not in rocid.log():
                raise lab.Failure(rocid.log())
    finally:
        del os.environ['NOTIFY_SOCKET']


def speaks_for_no_program():
    """A program that is a service notifies its manager itself. So the rocid that `roci run` starts for this program
    must send no notification."""
    with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f'{folder}/notify')
        os.environ['NOTIFY_SOCKET'] = f'{folder}/notify'
        try:
            ephemeral.finish(ephemeral.start(['ibv_devices'], folder, os.geteuid()), 'ibv_devices')
        finally:
            del os.environ['NOTIFY_SOCKET']
        ephemeral.wait_for(lambda: not ephemeral.rocids_of(folder), ephemeral.IDLE_LIMIT, 'rocid is still there')
        manager.setblocking(False)
        try:
            raise lab.Failure(f'the manager of ibv_devices heard {manager.recv(4096)}')
        except BlockingIOError:
            pass


def by_each_icrc_kernel():
    """rocid must use the CRC kernel that ROCI_CRC selects. If this processor does not support this kernel, rocid must
    use another kernel and log this. The log and the status must contain the name of the same kernel."""
    for wanted in ('table', 'pclmul', 'vpclmul256', 'vpclmul512', 'nonsense'):
        os.environ['ROCI_CRC'] = wanted
        try:
            with lab.Rocid() as rocid:
                log, runs = rocid.log(), rocid.status()['host']['icrc']
        finally:
            del os.environ['ROCI_CRC']
        refused = f'ROCI_CRC={wanted}: this processor cannot run that' in log
        if f'ICRC by {runs}' not in log or refused == (runs == wanted) or (wanted == 'nonsense' and not refused):
            raise lab.Failure(f'ROCI_CRC={wanted}, {runs} runs:\n{log}')


LOOPBACK = """[[device]]
name = "roci{}"
port = "loopback"
peer = "roci{}"
mac = "02:52:4f:43:49:0{}"
addresses = ["10.77.0.{}/24"]
"""
# The loopback devices are not adjacent, and the device between them cannot be opened.
APART = LOOPBACK.format(0, 1, 0, 1) + """[[device]]
name = "roci2"
port = "af_packet"
interface = "none0"
""" + LOOPBACK.format(1, 0, 1, 2) + """[[device]]
name = "roci3"
port = "udp"
interface = "lo"
addresses = ["127.77.0.9/8"]
"""
# {what: (configuration, devices whose frames have an ICRC)}
ICRCS = {
    'by default': ('', set()),
    'a fault': ('[fault]\ndrop = 1e-12\n', {'roci0', 'roci1'}),
    'always': ('[engine]\nloopback_icrc = "always"\n', {'roci0', 'roci1'}),
    'its own peer': (LOOPBACK.format(0, 0, 0, 1), set()),
    'devices of other kinds': (APART, {'roci3'}),
}


def icrcs_in_frames():
    """Frames between loopback devices have no ICRC, unless a fault or loopback_icrc is configured. Sender and receiver
    must agree, whatever the order of the devices is, and frames of other devices must have an ICRC."""
    for what, (text, expected) in ICRCS.items():
        with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder:
            config = pathlib.Path(folder) / 'rocid.toml'
            config.write_text(text)
            with lab.Rocid(config) as rocid:
                ports = {port['device']: port['icrc_in_frames'] for port in rocid.status()['host']['ports']}
                if {device for device, whole in ports.items() if whole} != expected:
                    raise lab.Failure(f'{what}: icrc_in_frames is {ports}:\n{rocid.log()}')
                path = ('roci0', 'roci1' if 'roci1' in ports else 'roci0')
                gids = {device: lab.gid_indexes(rocid, device) for device in path}
                pairs.run_pair(rocid, pairs.Pair('ib_send_bw', '-s 65536 -n 200', path=path), gids, quick=False)
                verdicts = rocid.status()['host']['engines'][0]['frames_by_verdict']
                if verdicts['bad_icrc'] != 0:
                    raise lab.Failure(f'{what}: frames were refused: {verdicts}')


def warning_and_error():
    """ROCI_CRC names no ICRC kernel. rocid warns if it serves. If it cannot start, it prints the error only."""
    with tempfile.TemporaryDirectory(prefix='roci-starts-') as folder:
        for path, serves in ((f'{folder}/rocid.sock', True), ('/proc/none/rocid.sock', False)):
            done = subprocess.run([str(lab.ROCID), '--loopback', '--socket', path, '--set', 'memory.mbufs=1024', '--exit-when-idle', '1'], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=lab.START_LIMIT, check=False, env=os.environ | {'ROCI_CRC': 'fast'})
            said = done.stdout + done.stderr
            right = 'ROCI_CRC=fast' in said if serves else 'ROCI_CRC' not in said and len(said.splitlines()) == 1
            if done.returncode != (0 if serves else 1) or not right:
                raise lab.Failure(f'{path}: {done.returncode}\n{said}')


def nice_of_threads(rocid):
    """Returns {name of a thread: its nice values}."""
    values = {}
    for stat in pathlib.Path(f'/proc/{rocid.process.pid}/task').glob('*/stat'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended
            name, fields = stat.read_text().partition('(')[2].rsplit(') ', 1)
            values.setdefault(name, set()).add(int(fields.split()[16]))
    return values


def nice_values(permitted):
    """The engine's thread adds engine.nice to rocid's nice value, if rocid may. No other thread of rocid changes its
    nice value. The status contains the nice value of the engine's thread."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for change in (3, 0, -5):
        rocid = lab.Rocid(args=['--set', f'engine.nice={change}'])
        if not permitted:
            without = ['setpriv', '--bounding-set', '-sys_nice', '--inh-caps', '-sys_nice'] if os.geteuid() == 0 else []
            rocid.command = ['prlimit', '--nice=0', *without, *rocid.command]
        wanted = own if change < 0 and not permitted else max(-20, min(19, own + change))

        def found():
            threads = nice_of_threads(rocid)
            engine, said = threads.pop('rte-worker-1'), rocid.status()['host']['engines'][0]['nice']
            return engine == {wanted} and said == wanted and all(v == {own} for v in threads.values())
        with rocid:
            wait_for(found, f'engine.nice={change}, rocid has {own}, the engine {wanted}', [rocid.log_path])


def may_decrease_nice():
    """Returns True if this process may decrease nice values by 5."""
    tried = subprocess.run(['nice', '-n', '-5', 'true'], capture_output=True, text=True, check=False)
    return not tried.stderr


CASES = {
    "start: a program's service manager hears nothing of roci run's rocid": speaks_for_no_program,
    'start: a service manager hears of start and stop': tells_its_manager,
    'start: a service manager that is gone': without_its_manager,
    'start: two at once on one socket': two_at_once,
    'start: beside a virtio_user server that waits for its peer': beside_one_that_waits,
    'start: by each ICRC kernel': by_each_icrc_kernel,
    'start: which devices have an ICRC in their frames': icrcs_in_frames,
    'start: many engines on ordinary pages': engines_on_ordinary_pages,
    'start: warning and error': warning_and_error,
    'start: nice value of an engine': lambda: nice_values(may_decrease_nice()),
    'start: nice value of an engine, not permitted': lambda: nice_values(False),
}
