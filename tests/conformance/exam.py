"""The exam: real set-ups that are broken or slow, and patterns that the output of `roci why` or `roci top` must
match."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from lab import ROCI, Failure, Rocid

PROGRAM = pathlib.Path(__file__).with_name('exam_program.py')
PYTHON = '/usr/bin/python3'  # the interpreter for which pyverbs is installed

# Per case: the patterns that the report of `roci why` must match. The patterns describe the cause in words that a user
# understands.
QUESTIONS = {
    'wrong_rkey': (r'R_Key of a request names no memory region', r'wanted: remote write of 64 bytes at 0x[0-9a-f]+ by key 0xdead00'),
    'wrong_pd': (r'R_Key of a request is of another protection domain', r'by key .* from PD (\d+); its region: .* PD (?!\1)\d+'),
    'wrong_range': (r'beyond the memory region of its R_Key', r'its region: 65536 bytes'),
    'no_remote_write': (r'region of an R_Key does not permit this access', r'for local write$'),
    'access_flags': (r'qp_access_flags do not permit this request',),
    'no_receive': (r'cause: the peer had no receive posted',),
    'slow_reader': (r'the peer had no receive posted \d+ times',),
    'receive_too_small': (r'longer than the receive that was posted',),
    'path_mtu': (r'path MTU 4096 at QP \d+ but 1024 at QP \d+',),
    'small_mtu': (r'the path MTU is 1024',),
    'wrong_qpn': (r'cause: the peer did not answer', r'no QP of yours on roci1 has the destination QP number 703710'),
    'wrong_gid': (r'cause: the peer did not answer', r'no QP of yours on roci0 has the destination QP number'),
    'wrong_psn': (r'starts at PSN 5000 .* expects 7',),
    'peer_not_ready': (r'cause: the peer did not answer', r'is in INIT: it must be in RTR or RTS'),
    'cq_too_small': (r'cause: the completion queue overran',),
    'wrong_lkey': (r'L_Key of an SGE names no memory region', r'key 0xdead00'),
    'lkey_of_other_pd': (r'L_Key of an SGE is of another protection domain',),
    'misaligned_atomic': (r'not a multiple of 8',),
    'wrong_qkey': (r'another Q_Key',),
    'datagram_without_receive': (r'no receive was posted that is long enough',),
    'datagram_too_long': (r'message is longer than the QP can send',),
    'deregistered': (r'R_Key of a request names no memory region', r'no region has this key'),
    'memory_by_address': (r'reached by address, which is slow',),
    'lossy': (r'network loses or delays packets: \d+ of \d+ packets',),
    'idle_program': (r'nothing waits to be sent',),
    'not_connected': (r'not connected: the program must take it to RTR',),
    'every_request_signalled': (r'every work request is signalled \(each of the last 16\)',),
    'unaligned_buffers': (r'the buffers of 16 of the last 16 send requests are not aligned',),
    'many_qps': (r'its engine serves 110\d QPs',),
    'missing_neighbour': (r'cause: it is not connected: ibv_modify_qp to RTR was refused: .*10\.77\.0\.99',),
    'retry_limit': (r'cause: (the peer did not answer|packets were lost)', r'retry_cnt is 0: a single loss can end the connection'),
    'incast': (r'incast: 12 QPs receive on this device, and packets to \d+ of them were lost',),
}
# Per case: the patterns that the output of `roci top --once` must match. {qpn} stands for the number of the first QP
# of the set-up.
TOP_QUESTIONS = {
    'tiny_window': (r'^{qpn} +window [5-9]\d%|^{qpn} +window 100%', r'^limit "window" \(\d QPs?\): as many packets as engine.max_inflight'),
    'credits': (r'^{qpn} +credits [5-9]\d%|^{qpn} +credits 100%', r'^limit "credits" \(1 QP\): the peer has no receive posted'),
    'sleeping_engine': (r'^engine 0 slept \d+ times a second, \d+ % of the time', r'engine.idle = "spin"'),
    'shared_cpu': (r'^engine 0 lost its CPU to other threads for \d+ % of the time', r'engine.cpus'),
}
# Configurations of the cases that need a separate rocid.
CONFIGS = {
    'lossy': '[fault]\nseed = 7\ndrop = 0.01\n',
    'incast': '[fault]\nseed = 7\ndrop = 0.02\n',
    'retry_limit': '[fault]\nseed = 7\ndrop = 0.1\n',
    'tiny_window': '[engine]\nmax_inflight = 8\n[fault]\ndelay_us = 2000\n',
    'shared_cpu': '[engine]\nidle = "spin"\ncpus = "{cpu}"\n',
}
PROGRAMS = {'shared_cpu': 'idle_program'}  # name of the case in exam_program.py, if it differs from the name here
BUSY = 'import os\nos.sched_setaffinity(0, [{cpu}])\nprint("runs", flush=True)\nwhile True: pass'


def missing():
    done = subprocess.run([PYTHON, '-c', 'import pyverbs'], check=False, capture_output=True)
    return 'no pyverbs (./dev setup installs python3-pyverbs)' if done.returncode else None


def why(rocid, qpn):
    done = subprocess.run([ROCI, 'why', '--socket', rocid.socket, str(qpn)], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise Failure(f'roci why {qpn} returned {done.returncode}: {done.stderr}')
    return done.stdout


def judge(name, text, when):
    lines = text.splitlines()
    if long := [line for line in lines if len(line) > 300]:
        raise Failure(f'{name}: lines without end: {long[:1]}')
    for wanted in QUESTIONS[name]:
        if not re.search(wanted, text, re.M):
            raise Failure(f'roci why ({when}) does not say /{wanted}/:\n{text}')


def top(rocid, *arguments):
    done = subprocess.run([ROCI, 'top', '--once', '--socket', rocid.socket, *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Failure(f'roci top {arguments} returned {done.returncode}: {done.stderr}')
    return done.stdout


@contextlib.contextmanager
def set_up(rocid, name):
    """Runs a set-up during a `with` block. Yields the numbers of its QPs as strings."""
    command = rocid.command_of([PYTHON, str(PROGRAM), name])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        try:
            qps = []
            for line in program.stdout:
                if line.startswith('QPs'):
                    qps = line.split()[1:]
                if line.startswith('ready'):
                    break
            if not qps:
                raise Failure(f'{name} did not come to its end')
            yield qps
        finally:
            program.stdin.close()
            program.stdout.read()


@contextlib.contextmanager
def busy_cpu(cpu):
    """Runs two programs during a `with` block. Both use this CPU all the time."""
    command = [PYTHON, '-c', BUSY.format(cpu=cpu)]
    some = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for one in some:
            one.stdout.readline()
        yield
    finally:
        for one in some:
            one.kill()
            one.wait()
            one.stdout.close()


def answer_top(rocid, name):
    with contextlib.ExitStack() as stack:
        qpn, _ = stack.enter_context(set_up(rocid, PROGRAMS.get(name, name)))
        if name == 'shared_cpu':
            stack.enter_context(busy_cpu(last_cpu()))
        text = top(rocid)
        for wanted in TOP_QUESTIONS[name]:
            if not re.search(wanted.replace('{qpn}', qpn), text, re.M):
                raise Failure(f'roci top does not say /{wanted.replace("{qpn}", qpn)}/:\n{text}')
    rocid.check_alive()


def last_cpu():
    return max(os.sched_getaffinity(0))


def answer(rocid, name):
    """Checks the report of `roci why` while the program runs. If the report contains a cause, rocid must still report
    the QP after the program has ended. If the vendor_err of the first failed completion stands for this cause, the
    standard error of the program must contain the cause."""
    command = rocid.command_of([PYTHON, str(PROGRAM), name])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        said = []
        for line in program.stdout:
            said.append(line)
            if line.startswith('ready'):
                break
        try:
            qps = [line.split()[1:] for line in said if line.startswith('QPs')]
            if not qps:
                program.stdin.close()
                raise Failure(f'{name} did not come to its end:\n{"".join(said)}{program.stderr.read()}')
            first = int(qps[0][0])
            text = why(rocid, first)
            judge(name, text, 'live')
            if 'what happened:\n  +0.000000 s  the QP is in RESET\n' not in text or 'the QP is in INIT\n' not in text:
                raise Failure(f'{name}: the events do not begin with the changes of the state:\n{text}')
        finally:
            if not program.stdin.closed:
                program.stdin.close()
            errors = program.stderr.read()
    rocid.check_alive()
    cause = re.search(r'cause: (.*) \(vendor_err (\d+)\)', text)
    failed = [line.split()[2] for line in said if line.startswith('completion') and line.split()[1] != '0']
    if failed and failed[0] == '0':
        raise Failure(f'{name}: a completion in error without a vendor_err: {"".join(said)}')
    if failed and cause and failed[0] == cause[2] and cause[1] not in errors:
        raise Failure(f'{name}: the program\'s standard error does not have the cause "{cause[1]}":\n{errors}')
    if cause and (again := [line for line in set(errors.splitlines()) if cause[1] in line and errors.splitlines().count(line) > 1]):
        raise Failure(f'{name}: the program says it more than once: {again}')
    if cause and 'destroyed, last in' not in why(rocid, first):
        raise Failure(f'{name}: roci why does not know the QP after its end')


def case(name):
    ask = answer_top if name in TOP_QUESTIONS else answer
    if name not in CONFIGS:
        return lambda rocid: ask(rocid, name)

    def with_its_own(_):
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as config:
            config.write(CONFIGS[name].replace('{cpu}', str(last_cpu())))
            config.flush()
            with Rocid(config.name) as own:
                ask(own, name)
    return with_its_own


# Programs that connect by address (rdma_cm) and fail. The report of `roci why --cm` must then match the patterns.
CM_QUESTIONS = {
    'nobody listens': ('rping -c -a 10.77.0.2 -I 10.77.0.1 -p 4711 -C 1',
                       (r'TCP to ::ffff:10.77.0.2 port 4711', r'cause: nobody listens on that port at the peer', r'REJ, reason 8')),
    'nobody has the address': ('rping -c -a 10.77.0.99 -p 4711 -C 1',
                               (r'TCP to ::ffff:10.77.0.99 port 4711', r'cause: the address of the peer was not found on the network')),
}


def missing_cm():
    return None if shutil.which('rping') else 'no rping (./dev setup installs rdmacm-utils)'


def answer_cm(rocid, program, questions):
    done = subprocess.run(rocid.command_of(program.split()), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        raise Failure(f'{program} worked:\n{done.stdout}')
    text = subprocess.run([ROCI, 'why', '--cm', '--socket', rocid.socket], capture_output=True, text=True, timeout=30, check=True).stdout
    last = text.split('\n\n')[-1]
    for wanted in questions:
        if not re.search(wanted, last):
            raise Failure(f'roci why --cm does not say /{wanted}/:\n{last}')


CM_CASES = {f'exam: {name}': lambda rocid, p=program, q=questions: answer_cm(rocid, p, q) for name, (program, questions) in CM_QUESTIONS.items()}
CASES = {f'exam: {name.replace("_", " ")}': case(name) for name in [*QUESTIONS, *TOP_QUESTIONS]}
