#!/usr/bin/env python3
"""Runs rdma-core's own Python tests (Debian: rdma-core, python3-pyverbs) over a rocid that this script starts: on one device, and between two
devices.

    tests/conformance/pyverbs/run.py [--source FOLDER] [one | two | cm]

The suite is not stored in this repository. The script copies it from the package's documentation and unpacks it. With `--source` it runs the
suite of a newer rdma-core instead: FOLDER is its source and FOLDER/build its build, with pyverbs for PYTHON. Every test must pass, except the
tests in the table SKIPS, which may be skipped. Ends with `N passed, N failed, N skipped`.
"""
import argparse
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
# Modules that release 65 has and Debian 12's release does not have. test_phc_timestamp is missing, because its tests need the clock of a NIC.
NEWER = ['test_buf', 'test_dmah', 'test_srq']

# Tests that may be skipped. A value contains the pattern of the test's name, the pattern of the reason that the suite
# prints, and why the skip is correct.
RAW = (r'.*', 'raw packet QPs are none of RDMA over Ethernet')
DMABUF = (r'.*', 'there is no GPU whose memory could be exported')
SKIPS = [
    (r'test_qp\.QPTest\.test_.*raw.*', *RAW),
    (r'test_qpex\.QpExTestCase\.test_qp_ex_raw.*', *RAW),
    (r'test_mr\.DmaBuf.*', *DMABUF),
    (r'test_mr\.DeviceMemoryAPITest\.test_dm_export_dmabuf_fd', r'.*', 'device memory is shared memory, so it has no dmabuf'),
    (r'test_buf\..*_cc_pd.*', r'CC PD is not supported', 'only a confidential guest needs memory that it shares with devices'),
    (r'test_buf\..*_on_bounce_device', r'Device does not report CC_DMA_BOUNCE', 'only a device of a confidential guest needs such memory'),
    (r'test_dmah\..*', r'Operation not supported', 'a DMA handle is for the transfers of a PCIe device'),
]
# `least` is the minimum number of passed tests of Debian 12's suite, `newest` that of release 65. A suite that runs fewer tests must not count as a
# success.
MODES = {
    'one': {'modules': MODULES, 'newer': NEWER, 'least': 139, 'newest': 175},
    # test_shared_pd is missing, because two of its three ends would use the same device.
    'two': {'modules': [m for m in MODULES if m != 'test_shared_pd'], 'newer': NEWER, 'least': 138, 'newest': 174},
    'cm': {'modules': ['test_rdmacm'], 'newer': [], 'least': 10, 'newest': 11},
}


def copy_suite(folder, suite):
    tests = pathlib.Path(folder, 'tests')
    shutil.copytree(suite, tests, ignore=shutil.ignore_patterns('__pycache__'))
    for packed in tests.glob('*.gz'):
        packed.with_suffix('').write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


def run_suite(mode, folder, rocid, source):
    libraries = [lab.BUILD / 'verbs_api/libibverbs', lab.BUILD / 'verbs_api/librdmacm']
    environment = os.environ | {'ROCI_SOCKET': rocid.socket, 'LD_LIBRARY_PATH': ':'.join(map(str, libraries))}
    modules = MODES[mode]['modules']
    if source:
        environment |= {'PYTHONPATH': str(source / 'build/python')}
        modules = modules + MODES[mode]['newer']
    command = [PYTHON, str(HERE / 'drive.py'), folder, 'two' if mode == 'two' else 'one', 'roci0', 'roci1', '1', *modules]
    if source:
        command = rocid.command_of(command)  # a test of release 65 reads a file of the device in /sys
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    rocid.check_alive()
    return done


def expected_skip(name, reason):
    return any(re.search(f'{test}$', name) and re.match(why, reason) for test, why, _ in SKIPS)


def judge(mode, done, least):
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
    if done.returncode != 0 or passed < least:
        failed += 1
        print(f'FAIL {mode}: {passed} passed, at least {least} must; exit code {done.returncode}\n{done.stderr[-2000:]}')
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
    parser = argparse.ArgumentParser(description='Runs the Python tests of rdma-core over rocid.')
    parser.add_argument('--source', type=lambda text: pathlib.Path(text).resolve(), help='the source of a newer rdma-core, built in its folder build')
    parser.add_argument('modes', nargs='*', metavar='mode', help='one, two or cm; default: all')
    arguments = parser.parse_args()
    reserve_huge_pages()
    if not arguments.source and (not SUITE.is_dir() or subprocess.run([PYTHON, '-c', 'import pyverbs'], check=False, capture_output=True).returncode != 0):
        print(f'SKIP rdma-core\'s tests: no {SUITE}, or no pyverbs (./dev setup installs rdma-core and python3-pyverbs)')
        print('0 passed, 0 failed, 1 skipped')
        return 0
    total = [0, 0, 0]
    with tempfile.TemporaryDirectory(prefix='roci-pyverbs-') as folder:
        copy_suite(folder, arguments.source / 'tests' if arguments.source else SUITE)
        for mode in arguments.modes or MODES:
            with lab.Rocid() as rocid:
                counts = judge(mode, run_suite(mode, folder, rocid, arguments.source), MODES[mode]['newest' if arguments.source else 'least'])
            print(f'{mode}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped', flush=True)
            total = [a + b for a, b in zip(total, counts)]
    print(f'{total[0]} passed, {total[1]} failed, {total[2]} skipped')
    return 1 if total[1] else 0


if __name__ == '__main__':
    sys.exit(main())
