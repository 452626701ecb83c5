"""Tests which control group (cgroup v1 or v2) is charged for memory: the group of rocid, which has a limit of 256
MiB, or the group of a client. The last cases run rocids without capabilities."""
import contextlib
import os
import pathlib
import time
import types

from kills import wait_for_totals
from lab import BUILD, Failure, Program, Rocid, gid_indexes
from pairs import Pair, run_pair
from single import DEVICES

MIB = 1 << 20
LIMIT = 256 * MIB  # memory limit of rocid's group in bytes
BIG_MB = 1024  # MiB that each end of a client registers
ROCID_USER, OTHER_USER = 65530, 65531
MEMORY_TEST = BUILD / 'tests/conformance/verbs/conformance_memory'


class Group:
    """A control group whose peak memory use can be read. `limit` is its memory limit in bytes. None means no
    limit."""
    V2 = (pathlib.Path('/sys/fs/cgroup'), 'memory.max', 'memory.peak', 'memory.events')
    V1 = (pathlib.Path('/sys/fs/cgroup/memory'), 'memory.limit_in_bytes', 'memory.max_usage_in_bytes', 'memory.oom_control')

    def __init__(self, name, limit=None):
        root, self.max, self.peak, self.events = self.V1 if (self.V1[0] / self.V1[1]).exists() else self.V2
        self.path = root / f'roci-test-{os.getpid()}-{name}'
        self.path.mkdir()
        try:
            (self.path / self.peak).read_text()  # memory.peak needs Linux 5.19
            if limit is not None:
                (self.path / self.max).write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:  # a process of the group has not ended yet
                time.sleep(0.05)
        return None

    def command(self, command):
        return ['sh', '-c', f'echo 0 >{self.path}/cgroup.procs && exec "$@"', 'sh', *map(str, command)]

    def peak_bytes(self):
        return int((self.path / self.peak).read_text())

    def killed(self):
        return sum(int(line.split()[1]) for line in (self.path / self.events).read_text().splitlines() if line.startswith('oom_kill '))


def missing():
    if not MEMORY_TEST.exists():
        return 'the conformance programs are not built'
    try:
        with Group('probe', LIMIT):
            return None
    except OSError as why:
        return f'no control group with a memory limit can be made here: {why}'


def in_small_rocid(body, args=()):
    """Runs body(rocid, group of rocid) with a rocid that is limited to 256 MiB. Afterwards rocid must still run and
    have the same objects as before."""
    with Group('rocid', LIMIT) as own:
        rocid = Rocid(args=args)
        rocid.command = own.command(rocid.command)
        with rocid:
            gids = {device: gid_indexes(rocid, device) for device in DEVICES}
            run_pair(rocid, Pair('ibv_rc_pingpong', '-c -n 200'), gids, quick=False)
            before = rocid.totals()
            body(rocid, own)
            rocid.check_alive()
            wait_for_totals(rocid, before)
            run_pair(rocid, Pair('ibv_rc_pingpong', '-c -n 200'), gids, quick=False)
            if own.killed():
                raise Failure(f'the kernel killed for want of memory in rocid\'s group; rocid\'s log ends:\n{rocid.log()[-1500:]}')


def run_test(rocid, group, name, environment):
    inside = types.SimpleNamespace(command_of=lambda command: group.command(rocid.command_of(command)))
    program = Program(inside, [str(MEMORY_TEST), f'--gtest_filter=Memory.{name}'], environment)
    code = program.wait(120)
    rocid.check_alive()
    if code != 0 or ' PASSED ' not in program.output():
        raise Failure(f'{name} returned {code}:\n{program.output()[-2000:]}')


def untouched_memory():
    """Programs register 2 GiB of untouched memory, create the largest CQ, and remove pages of registered memory. In
    the first two cases the group of the program must be charged for the memory. rocid must always stay within its
    limit."""
    def body(rocid, own):
        start = own.peak_bytes()
        with Group('client') as client:
            run_test(rocid, client, 'UntouchedMemoryIsReadAndWritten', {'ROCI_UNTOUCHED_MB': str(BIG_MB)})
            if client.peak_bytes() < 2 * BIG_MB * MIB:
                raise Failure(f'the client registered {2 * BIG_MB} MiB and paid for {client.peak_bytes() // MIB}')
        with Group('client') as client:
            run_test(rocid, client, 'TheLargestCqCanBeMade', {})
            if client.peak_bytes() < 4_000_000 * 64:
                raise Failure(f'the largest CQ was charged to its client with {client.peak_bytes() // MIB} MiB only')
        with Group('client') as client:
            run_test(rocid, client, 'PagesThatWereRemovedAreZeroOrRefused', {'ROCI_REMOVED_MB': str(BIG_MB)})
        print(f'    rocid: {start // MIB} MiB at rest, {own.peak_bytes() // MIB} MiB at most, of {LIMIT // MIB}')
    in_small_rocid(body)


def no_other_users():
    if not MEMORY_TEST.exists():
        return 'the conformance programs are not built'
    return 'needs root, to become other users' if os.geteuid() != 0 else None


def as_user(uid, command):
    return ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all', *map(str, command)]


def unprivileged():
    """A rocid without any capability must access all memory of another user's program. This includes memory that
    rocid cannot share."""
    rocid = Rocid(args=('--set', 'rocid.socket_mode=0o666'))
    os.chmod(rocid.folder.name, 0o777)
    rocid.command = as_user(ROCID_USER, rocid.command)
    with rocid:
        names = 'EveryKindOfMemoryCanBeRegistered', 'ASharedMappingOfARegularFileCanBeRegistered'
        tests = [MEMORY_TEST, '--gtest_filter=' + ':'.join(f'Memory.{name}' for name in names)]
        program = Program(rocid, as_user(OTHER_USER, tests))
        if program.wait(60) != 0 or f'PASSED  ] {len(names)} tests' not in program.output():
            raise Failure(f'{rocid.log()[-800:]}\n{program.output()[-2000:]}')
        rocid.check_alive()


def two_users():
    """The rocids of two users run at the same time. Neither rocid may create a folder that the other rocid also
    needs."""
    with contextlib.ExitStack() as stack:
        rocids = [Rocid() for _ in range(2)]
        for uid, rocid in zip((ROCID_USER, OTHER_USER), rocids):
            os.chmod(rocid.folder.name, 0o777)
            rocid.command = as_user(uid, ['env', '-u', 'XDG_RUNTIME_DIR', '-u', 'RUNTIME_DIRECTORY', *rocid.command])
            stack.enter_context(rocid)
        for rocid in rocids:
            rocid.check_alive()
            if 'EAL:' in rocid.log():
                raise Failure(rocid.log()[-800:])


UNPRIVILEGED = {'a rocid without capabilities reaches all memory of another user': unprivileged,
                'rocids of two users without root': two_users}
CASES = {'a rocid of 256 MiB: who registers memory and makes queues pays for them': untouched_memory}
