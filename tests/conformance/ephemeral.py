"""If no rocid runs, `roci run` starts one. Programs of several `roci run` commands share this rocid. It must end
after the last program."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from connection_errors import ERRORS, missing
from lab import ROCI, Failure, Rocid, free_port, listening_ports

NOBODY = 65534
IDLE_LIMIT = 20  # maximum number of seconds after which an ephemeral rocid without programs must have ended


def start(command, folder, uid, options=()):
    environment = {k: v for k, v in os.environ.items() if k != 'ROCI_SOCKET'} | {'XDG_RUNTIME_DIR': folder}
    become = {'user': uid, 'group': uid, 'extra_groups': []} if uid != os.geteuid() else {}
    return subprocess.Popen([str(ROCI), 'run', *options, '--', *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, cwd='/', **become)


def finish(process, what):
    try:
        output, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f'{what} hangs: {process.communicate()[0][-1000:]}') from None
    if process.returncode != 0:
        raise Failure(f'{what} returned {process.returncode}: {output[-1500:]}')
    return output


def wait_for(condition, limit, what):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f'{what}, after {limit} s')
        time.sleep(0.1)


def rocids_of(folder):
    """Returns the process ids of the rocids whose command line contains a path in this folder."""
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        try:
            words = (entry / 'cmdline').read_bytes().split(b'\0') if entry.name.isdigit() else []
        except OSError:
            continue
        if words and words[0].endswith(b'rocid') and any(w.startswith(folder.encode()) for w in words):
            found.append(int(entry.name))
    return found


def life_of_one(uid):
    port = free_port()
    with tempfile.TemporaryDirectory(prefix='roci-user-') as folder:
        os.chown(folder, uid, uid)
        # Starts the server and ibv_devices at the same time, so that both `roci run` commands try to start the rocid.
        server = start(['ibv_rc_pingpong', '-d', 'roci0', '-g', '1', '-c', '-p', str(port)], folder, uid)
        listing = start(['ibv_devices'], folder, uid)
        if 'roci1' not in finish(listing, 'ibv_devices'):
            raise Failure('ibv_devices does not list roci1')
        wait_for(lambda: port in listening_ports() or server.poll() is not None, 60, 'the server does not listen')
        client = start(['ibv_rc_pingpong', '-d', 'roci1', '-g', '1', '-c', '-p', str(port), '127.0.0.1'], folder, uid)
        finish(client, 'the client')
        finish(server, 'the server')
        if len(rocids_of(folder)) != 1:
            raise Failure(f'{len(rocids_of(folder))} rocids run: all programs of a user must meet in one')
        wait_for(lambda: not rocids_of(folder), IDLE_LIMIT, 'the ephemeral rocid still runs without any program')


def single_device():
    """With --single there must be one device. A listener must see the address of this device as the client's address.
    Without --single, another rocid with two devices must start."""
    with tempfile.TemporaryDirectory(prefix='roci-user-') as folder:
        listing = finish(start(['ibv_devices'], folder, os.geteuid(), ('--single',)), 'ibv_devices')
        if 'roci0' not in listing or 'roci1' in listing:
            raise Failure(f'roci0 alone was expected: {listing}')
        test = [str(ERRORS), '--gtest_also_run_disabled_tests', '--gtest_filter=CmEvents.DISABLED_OnOneHost']
        if '1 test.' not in (output := finish(start(test, folder, os.geteuid(), ('--single',)), 'cm_errors')):
            raise Failure(output)
        if 'roci1' not in finish(start(['ibv_devices'], folder, os.geteuid()), 'ibv_devices'):
            raise Failure('without --single there are two devices')
        wait_for(lambda: not rocids_of(folder), IDLE_LIMIT, 'the ephemeral rocids still run without any program')


def setuid_program():
    """In the user namespace of a view, a set-user-ID program would run without the rights of its owner. So it must get no view."""
    with Rocid(args=['--set', 'rocid.socket_mode=0o666', '--set', 'memory.mbufs=1024']) as rocid:
        os.chmod(rocid.folder.name, 0o755)
        program = shutil.copy('/usr/bin/id', rocid.folder.name)
        os.chmod(program, 0o4755)
        options = ('--socket', rocid.socket)
        if (said := finish(start([program, '-u'], '/tmp', NOBODY, options), 'id')) != '0\n':
            raise Failure(f'the effective user is {said}, 0 wanted')
        if shutil.which('ping') and finishes(['ping', '-c', '1', '127.0.0.1']):  # not in a container without CAP_NET_RAW
            finish(start(['ping', '-c', '1', '127.0.0.1'], '/tmp', NOBODY, options), 'ping')


def finishes(command):
    return subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, cwd='/', check=False).returncode == 0


def why_no_setuid():
    if os.geteuid() != 0:
        return 'needs root'
    if os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID:
        return 'the folder for temporary files is mounted with nosuid'
    return why_not_ordinary_user()


def can_run_as(uid):
    try:
        done = subprocess.run([str(ROCI), '--version'], user=uid, group=uid, extra_groups=[], capture_output=True, cwd='/', check=False)
    except PermissionError:  # the build is in a folder of root
        return False
    return done.returncode == 0


def as_ordinary_user():
    if os.geteuid() != 0:
        return life_of_one(os.geteuid())
    return life_of_one(NOBODY)


def why_not_ordinary_user():
    """Returns the reason why the case must be skipped, or None."""
    if os.geteuid() != 0:
        return None
    try:
        return None if can_run_as(NOBODY) else 'this checkout cannot be read by an ordinary user'
    except OSError as error:
        return f'this checkout cannot be read by an ordinary user ({error})'


# The key is the name. The value is the case, and a function that returns the reason to skip it, or None.
CASES = {
    'roci run without a rocid starts one, which ends with its last program': (lambda: life_of_one(os.geteuid()), lambda: None),
    'roci run --single: one device, and a server sees its client at its own address': (single_device, missing),
    'the same as an ordinary user without any privilege': (as_ordinary_user, why_not_ordinary_user),
    'roci run: a set-user-ID program keeps its rights, and ping works': (setuid_program, why_no_setuid),
}
