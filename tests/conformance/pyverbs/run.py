#!/usr/bin/env python3
"""Runs rdma-core's own Python tests (Debian: rdma-core, python3-pyverbs) over a rocid that this script starts: on one device, and between two
devices.

    tests/conformance/pyverbs/run.py [one | two | cm]

The suite is not stored in this repository. The script copies it from the package's documentation and unpacks it. Every test must pass,
except the tests in the table SKIPS, which may be skipped. Ends with `N passed, N failed, N skipped`.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import lab  # noqa: E402

SUITE = pathlib.Path('/usr/share/doc/rdma-core/tests')
PYTHON = '/usr/bin/python3'  # the interpreter for which pyverbs is installed; `python3` in PATH may be another interpreter
LIMIT = 600

MODULES = ['test_device', 'test_addr', 'test_pd', 'test_cq', 'test_cq_events', 'test_cqex', 'test_qp', 'test_qpex', 'test_mr', 'test_atomic',
           'test_parent_domain', 'test_relaxed_ordering', 'test_fork', 'test_odp', 'test_shared_pd', 'test_tag_matching']

# Tests that may be skipped. A value contains the pattern of the test's name, the pattern of the reason that the suite
# prints, and why the skip is correct.
RAW = (r'.*', 'raw packet QPs are none of RDMA over Ethernet')
DMABUF = (r'.*', 'there is no GPU whose memory could be exported')
SKIPS = [
    (r'test_qp\.QPTest\.test_.*raw.*', *RAW),
    (r'test_qpex\.QpExTestCase\.test_qp_ex_raw.*', *RAW),
    (r'test_mr\.DmaBuf.*', *DMABUF),
]
# `least` is the minimum number of passed tests. A suite that runs fewer tests must not count as a success.
MODES = {
    'one': {'modules': MODULES, 'least': 139},
    # test_shared_pd is missing, because two of its three ends would use the same device.
    'two': {'modules': [m for m in MODULES if m != 'test_shared_pd'], 'least': 138},
    'cm': {'modules': ['test_rdmacm'], 'least': 10},
}


def copy_suite(folder):
    tests = pathlib.Path(folder, 'tests')
    shutil.copytree(SUITE, tests)
    for packed in tests.glob('*.gz'):
        packed.with_suffix('').write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


def run_suite(mode, folder, rocid):
    libraries = [lab.BUILD / 'verbs_api/libibverbs', lab.BUILD / 'verbs_api/librdmacm']
    environment = os.environ | {'ROCI_SOCKET': rocid.socket, 'LD_LIBRARY_PATH': ':'.join(map(str, libraries))}
    command = [PYTHON, str(HERE / 'drive.py'), folder, 'two' if mode == 'two' else 'one', 'roci0', 'roci1', '1', *MODES[mode]['modules']]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    rocid.check_alive()
    return done


def expected_skip(name, reason):
    return any(re.search(f'{test}$', name) and re.match(why, reason) for test, why, _ in SKIPS)


def judge(mode, done):
    """Prints unexpected results. Returns the numbers of passed, failed and skipped tests."""
    passed = failed = skipped = 0
    for line in done.stdout.splitlines():
        match = re.match(r'(ok|skip|fail) (\S+): ?(.*)', line)
        if not match:
            continue
        word, name, text = match.groups()
        if word == 'ok':
            passed += 1
        elif word == 'skip' and expected_skip(name, text):
            skipped += 1
            print(f'SKIP {mode}: {name}: {text}')
        else:
            failed += 1
            print(f'FAIL {mode}: {name} {"may not skip" if word == "skip" else ""}: {text}')
    if done.returncode != 0 or passed < MODES[mode]['least']:
        failed += 1
        print(f'FAIL {mode}: {passed} passed, at least {MODES[mode]["least"]} must; exit code {done.returncode}\n{done.stderr[-2000:]}')
    return passed, failed, skipped


HUGE_PAGES = pathlib.Path('/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages')
ENOUGH = 128  # number of huge pages of 2 MiB


def reserve_huge_pages():
    """Reserves huge pages, because some tests map huge pages. If this process may not reserve them, these tests are
    skipped, and each of these skips counts as a failure."""
    try:
        if int(HUGE_PAGES.read_text()) < ENOUGH:
            HUGE_PAGES.write_text(str(ENOUGH))
    except OSError as error:
        print(f'no huge pages can be reserved: {error}', flush=True)


def main():
    reserve_huge_pages()
    if not SUITE.is_dir() or subprocess.run([PYTHON, '-c', 'import pyverbs'], check=False, capture_output=True).returncode != 0:
        print(f'SKIP rdma-core\'s tests: no {SUITE}, or no pyverbs (./dev setup installs rdma-core and python3-pyverbs)')
        print('0 passed, 0 failed, 1 skipped')
        return 0
    total = [0, 0, 0]
    with tempfile.TemporaryDirectory(prefix='roci-pyverbs-') as folder:
        copy_suite(folder)
        for mode in sys.argv[1:] or MODES:
            with lab.Rocid() as rocid:
                counts = judge(mode, run_suite(mode, folder, rocid))
            print(f'{mode}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped', flush=True)
            total = [a + b for a, b in zip(total, counts)]
    print(f'{total[0]} passed, {total[1]} failed, {total[2]} skipped')
    return 1 if total[1] else 0


if __name__ == '__main__':
    sys.exit(main())
