#!/usr/bin/env python3
"""Builds Debian packages from the committed tree, checks them with lintian, and installs them into a minimal root file system of Debian. In
this root, `roci run -- ib_write_bw` must transfer data.

        package.py [--full]    --full: as released, optimised by a profile of the benchmark's workload; takes twice the time. Also installs
                               python3-rocinante, and runs a test with the fixture of pytest
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ('dpkg-buildpackage', 'dh', 'lintian', 'mmdebstrap')
# Runs two programs in the root: a server on roci0 and a client on roci1. Both use one rocid, which the first `roci run` starts.
TRIAL = r'''set -e
roci doctor >/doctor || true
! grep STOPS /doctor
roci run -- ib_write_bw -d roci0 -x 1 -F -n 1000 >/server 2>&1 &
server=$!
for n in $(seq 300); do
    grep -q ':4853 .* 0A ' /proc/net/tcp && break
    sleep 0.1
done
roci run -- ib_write_bw -d roci1 -x 1 -F -n 1000 127.0.0.1 || { cat /server; exit 1; }
wait $server || { cat /server; exit 1; }
'''


# A test of another project, whose author has installed python3-rocinante and python3-pytest.
FIXTURE = r'''cat >/test_it.py <<END
import pytest

@pytest.mark.rdma(drop=0.01, seed=7)
def test_it(rdma):
    words = ['ib_write_bw', '-x', '1', '-F', '-n', '300']
    rdma.pair([*words, '-d', 'roci0'], [*words, '-d', 'roci1', '127.0.0.1'], port=18515)
END
pytest-3 -p no:cacheprovider /test_it.py
'''


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f'{" ".join(str(w) for w in words)}: {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-6000:]}'
    return done.stdout


def build(folder, options):
    tree = folder / 'rocinante'
    tree.mkdir()
    archive = folder / 'tree.tar'
    if (REPO / '.git').exists():
        run('git', '-c', f'safe.directory={REPO}', '-C', REPO, 'archive', '-o', archive, 'HEAD')
    else:  # the source tree is an unpacked release without git
        run('tar', 'cf', archive, '--exclude=./build*', '-C', REPO, '.')
    run('tar', 'xf', archive, '-C', tree)
    run('dpkg-buildpackage', '-us', '-uc', '--build=binary', cwd=tree, env=os.environ | {'DEB_BUILD_OPTIONS': options})
    return sorted(folder.glob('*.deb'))


def lint(folder):
    """lintian may report only two things: that the upload closes no Debian bug, and that the distribution is unknown."""
    run('lintian', '--fail-on', 'error,warning', '--suppress-tags', 'initial-upload-closes-no-bugs,bad-distribution-in-changes-file',
        next(folder.glob('*.changes')))


class NoMirror(Exception):
    """This machine cannot download the packages of the root."""


def bare_root(root, installed, programs):
    hooks = [f'--customize-hook=upload {p} /{p.name}' for p in installed]
    hooks.append('--customize-hook=chroot "$1" apt-get install -y --no-install-recommends ' + ' '.join(f'/{p.name}' for p in installed))
    try:
        run('mmdebstrap', '--variant=minbase', f'--include={programs}', *hooks, 'bookworm', root)
    except AssertionError as e:
        if any(word in str(e) for word in ('Temporary failure resolving', 'Could not connect', 'Failed to fetch')):
            raise NoMirror from e
        raise


def trial(folder, packages, full):
    root = folder / 'root'
    left_out = ('dbgsym', '-doc') if full else ('dbgsym', '-doc', 'python3')
    installed = [p for p in packages if not any(word in p.name for word in left_out)]
    bare_root(root, installed, 'perftest,python3-pytest' if full else 'perftest')
    unshared = ('unshare', '--mount', '--pid', '--fork', '--kill-child', 'chroot', root)
    mounted = 'mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm && ' + TRIAL + (FIXTURE if full else '')
    out = run(*unshared, 'sh', '-c', mounted)
    rows = [line for line in out.splitlines() if line.strip().startswith('65536')]
    assert rows and float(rows[0].split()[3]) > 0, out
    print(rows[0])


def main():
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f'SKIP: {", ".join(missing)} not installed')
        print('0 passed, 0 failed, 1 skipped')
        return 0
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            full = '--full' in sys.argv[1:]
            packages = build(folder, '' if full else 'nopgo')
            lint(folder)
            trial(folder, packages, full)
    except NoMirror:
        print('built and checked; SKIP: installing into a bare root, as the Debian mirror cannot be reached')
        print('1 passed, 0 failed, 1 skipped')
        return 0
    except AssertionError as e:
        print(f'FAIL {e}')
        print('0 passed, 1 failed')
        return 1
    print('1 passed, 0 failed')
    return 0


if __name__ == '__main__':
    sys.exit(main())
