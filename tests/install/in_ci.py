"""RDMA in the tests of other projects: the fixture of pytest, and the action of GitHub Actions. Both use an installed Rocinante."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
PYTHON = '/usr/bin/python3'  # the interpreter for which pytest and pyverbs are installed
FIXTURE_TEST = '''
import pytest
import rocinante

WORDS = ['ib_write_bw', '-x', '1', '-F', '-n', '300', '-p', {port}]
PAIR = [*WORDS, '-d', 'roci0'], [*WORDS, '-d', 'roci1', '127.0.0.1']

@pytest.mark.rdma(drop=0.02, seed=7)
def test_lost_frames_are_sent_again(rdma):
    assert ' 65536 ' in rdma.pair(*PAIR, port={port})
    assert rdma.counters('roci0')['out_of_order'] > 0

def test_no_frame_is_lost_by_default(rdma):
    assert ' 65536 ' in rdma.pair(*PAIR, port={port})
    assert rdma.counters('roci0')['out_of_order'] == 0

@pytest.mark.parametrize('time', [1, 2])
def test_pyverbs_in_this_process(rdma, time):
    rdma.load()
    import pyverbs.device
    assert [d.name for d in pyverbs.device.get_device_list()] == [b'roci0', b'roci1']
    assert pyverbs.device.Context(name='roci1').query_port(1).state == 4

@pytest.mark.rdma(drop=0.5, settings={{'engine.count': 2}})
def test_fails(rdma):
    rdma.pair(['false'], ['true'], port={port})

@pytest.mark.rdma(dorp=0.5)
def test_unknown_fault(rdma):
    pass

@pytest.mark.rdma(drop=7)
def test_bad_value(rdma):
    pass
'''


def run(*words, **options):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, check=False, **options)


def free_port():
    with socket.socket() as s:
        s.bind(('', 0))
        return s.getsockname()[1]


def programs(root, at):
    folders = [str(root / at[name].lstrip('/')) for name in ('bindir', 'sbindir')]
    return {k: v for k, v in os.environ.items() if k not in ('ROCI', 'ROCID', 'ROCI_SOCKET', 'LD_LIBRARY_PATH')} | {
        'PATH': ':'.join([*folders, os.environ['PATH']])}


def pytest_has_the_fixture(root, at):
    """pytest finds the fixture by the entry point of the installed module. Faults, seeds, failures and bad arguments are reported."""
    if run(PYTHON, '-c', 'import pytest, pyverbs').returncode != 0:
        return 'no pytest (Debian: python3-pytest)'
    module = next(root.glob('**/rocinante/pytest_plugin.py')).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, 'test_it.py').write_text(FIXTURE_TEST.format(port=free_port()), encoding='utf-8')
        done = run(PYTHON, '-m', 'pytest', '-p', 'no:cacheprovider', '--strict-markers', '--rdma-seed', '11', '-v', cwd=folder,
                   env=programs(root, at) | {'PYTHONPATH': str(module)})
    for wanted in (r'1 failed, 4 passed, 2 errors', r'test_fails FAILED', r'test_unknown_fault ERROR', r'no such fault: dorp', r'test_bad_value ERROR',
                   r'fault\.drop', r'false: 1', r'--set fault\.seed=11 --set fault\.drop=0\.5 --set engine\.count=2'):
        assert re.search(wanted, done.stdout), f'no /{wanted}/ in:\n{done.stdout[-6000:]}{done.stderr}'
    return None


def action_gives_rdma_to_later_steps(root, at):
    """Executes the steps of the action as a runner does: shell commands with inputs as variables, and files for their results."""
    action = REPO / '.github/actions/rdma'
    text = (action / 'action.yml').read_text(encoding='utf-8')
    steps = re.findall(r"run: '\"\$GITHUB_ACTION_PATH/(\S+)\"'", text)
    assert steps == ['build.sh', 'start.sh'], steps
    inputs = set(re.findall(r'ROCI_\w+: \$\{\{ inputs\.(\w+) \}\}', text))
    assert inputs == set(re.findall(r'^  (\w+): \{description', text.split('outputs:')[0], re.M)), f'inputs that are not passed on: {inputs}'
    defaults = re.findall(r"default: (\S+)}", text)
    assert len(defaults) == len(inputs) and set(defaults) == {"''"}, f'a default would replace a key of the configuration: {defaults}'
    with tempfile.TemporaryDirectory() as folder:
        results = {'GITHUB_ENV': f'{folder}/env', 'GITHUB_OUTPUT': f'{folder}/output', 'RUNNER_TEMP': folder, 'GITHUB_ACTION_PATH': str(action)}
        environment = programs(root, at) | results | {'ROCI_FAULT_DROP': '0.02', 'ROCI_FAULT_SEED': '7', 'ROCI_CONFIG': ''}
        process = None
        try:
            for step in steps:
                done = run('bash', '-e', action / step, env=environment)
                assert done.returncode == 0, f'{step}: {done.stdout}{done.stderr}'
            process = int(re.search(r'process (\d+)', done.stdout)[1])
            assert 'fault.drop=0.02' in done.stdout and 'fault.seed=7' in done.stdout, done.stdout
            later = programs(root, at) | dict(line.split('=', 1) for line in pathlib.Path(f'{folder}/env').read_text().splitlines())
            assert pathlib.Path(f'{folder}/output').read_text() == f'socket={later["ROCI_SOCKET"]}\n'
            write_bw(later)
            done = run('roci', 'stat', '--interval', '0', env=later)
            assert int(re.search(r'^\s*retransmits\s.*$', done.stdout, re.M)[0].split()[-1]) > 0, done.stdout
        finally:
            if process:
                os.kill(process, signal.SIGTERM)
        bad = run('bash', '-e', action / 'start.sh', env=environment | {'ROCI_FAULT_DROP': '7'})
        assert bad.returncode == 1 and 'fault.drop' in bad.stderr, f'{bad.returncode} {bad.stderr}'


def write_bw(environment):
    port = str(free_port())
    words = ['ib_write_bw', '-x', '1', '-F', '-n', '300', '-p', port]
    with subprocess.Popen([*words, '-d', 'roci0'], env=environment, stdout=subprocess.DEVNULL) as server:
        end = time.monotonic() + 30
        while f':{int(port):04X} ' not in pathlib.Path('/proc/net/tcp').read_text() + pathlib.Path('/proc/net/tcp6').read_text():
            assert server.poll() is None and time.monotonic() < end, 'the server does not listen'
            time.sleep(0.02)
        done = run(*words, '-d', 'roci1', '127.0.0.1', env=environment)
        assert done.returncode == 0 and re.search(r'^ 65536 ', done.stdout, re.M), f'{done.returncode} {done.stdout}{done.stderr}'
        assert server.wait(30) == 0


CASES = [pytest_has_the_fixture, action_gives_rdma_to_later_steps]
