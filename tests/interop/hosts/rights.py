"""Runs rocid as a user who has only the capabilities that docs/ports.md and config/rocid.service list for a kind of
port."""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile

from cases import XDP_MTU, Group, check, cross, fail, result
from hosts import REPO, ROCID, run
from ports import bridge, tap_config, tap_joins

UNIT = REPO / 'config/rocid.service'
NOBODY = 65534
NEEDS = {'af_packet': ('net_raw', 'net_admin'), 'af_xdp': ('net_raw', 'net_admin', 'bpf', 'perfmon'), 'tap': ('net_admin',)}


def may_lock():
    """Raises the limit of locked memory, if this process may raise it. Returns the capabilities that rocid needs to
    lock memory for rings and frames."""
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        return ('ipc_lock',)
    return ()


def with_rights(capabilities):
    """Returns a prefix for a command. The command then has only these capabilities and those of may_lock()."""
    some = ','.join(['-all', *(f'+{c}' for c in (*capabilities, *may_lock()))])
    return ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', '--no-new-privs',
            f'--inh-caps={some}', f'--ambient-caps={some}', f'--bounding-set={some}']


def config_of(kind, host):
    return tap_config(host) if kind == 'tap' else host.device(kind)


def serves(kind):
    def body(net):
        os.chmod(net.folder.name, 0o777)  # permits the unprivileged user to create sockets
        try:
            for host in (net.a, net.b):
                host.start(config_of(kind, host), under=with_rights(NEEDS[kind]))
                status = pathlib.Path(f'/proc/{host.process.pid}/status').read_text()
                check(re.search(rf'^Uid:\s+{NOBODY}\s', status, re.M), f'rocid is not unprivileged:\n{status}')
            if kind == 'tap':
                tap_joins(net)
            return result(cross(net, 'ib_write_bw -s 65536 -n 100'))
        finally:
            net.a.stop()
            net.b.stop()
    return body


def lacks(kind, missing, *texts):
    """Returns a case in which rocid lacks the capability `missing`. rocid must print one line with the given texts
    and exit with 1."""
    def body(net):
        os.chmod(net.folder.name, 0o777)
        try:
            check(not net.a.launch(config_of(kind, net.a), under=with_rights(c for c in NEEDS[kind] if c != missing)), f'{kind} opens without CAP_{missing.upper()}')
            check(net.a.process.returncode == 1, f'exit {net.a.process.returncode}')
            errors = [line for line in net.a.log().splitlines() if 'rocid: info' not in line]
            check(len(errors) == 1, 'not one line:\n' + '\n'.join(errors))
            for text in texts:
                check(text in errors[0], f'"{text}" is not in: {errors[0]}')
        finally:
            net.a.stop()
    return body


# ---- the systemd unit ------------------------------------------------------------------------------------------------

def settings(name):
    return [w for line in re.findall(rf'^{name}=(.*)$', UNIT.read_text(), re.M) for w in line.split()]


def unit_grants(_):
    """The systemd unit must run rocid as a separate user with exactly the capabilities of NEEDS. systemd must accept
    the unit file."""
    wanted = {f'CAP_{c.upper()}' for needs in NEEDS.values() for c in needs}
    for name in ('AmbientCapabilities', 'CapabilityBoundingSet'):
        check(set(settings(name)) == wanted, f'{name}={settings(name)}, but ports need {sorted(wanted)}')
    check(settings('DynamicUser') == ['yes'], 'the service is not run by a user of its own')
    if shutil.which('systemd-analyze') is None:
        fail('systemd-analyze is not installed (./dev setup)')
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / 'rocid.service'
        unit.write_text(UNIT.read_text().replace('/usr/sbin/rocid', str(ROCID)))
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no', str(unit)], capture_output=True, text=True, timeout=60, check=False)
        check(done.returncode == 0 and not done.stderr.strip(), f'systemd-analyze verify: {done.stderr}')
        exposure = run(['systemd-analyze', 'security', '--offline=true', '--no-pager', str(unit)], check=False)
    found = re.search(r'Overall exposure level .*: ([\d.]+) (\w+)', exposure)
    check(found, exposure[-300:])
    return f'exposure {found[1]} ({found[2]})'


def unprivileged(quick):
    for kind, needs in NEEDS.items():
        if kind != 'tap':
            yield f'unprivileged, {kind} with {", ".join(needs)} only: ib_write_bw', serves(kind)
    yield 'unprivileged, af_packet without net_raw', lacks('af_packet', 'net_raw', 'CAP_NET_RAW')
    yield 'unprivileged, af_packet without net_admin', lacks('af_packet', 'net_admin', 'CAP_NET_ADMIN')
    yield 'unprivileged, af_xdp without net_raw', lacks('af_xdp', 'net_raw', 'CAP_NET_RAW')
    yield 'unprivileged, af_xdp without bpf', lacks('af_xdp', 'bpf', 'CAP_BPF')
    yield 'unprivileged, af_xdp without perfmon', lacks('af_xdp', 'perfmon', 'CAP_PERFMON')
    yield 'unprivileged, af_xdp without net_admin', lacks('af_xdp', 'net_admin', 'CAP_NET_ADMIN')
    yield 'unprivileged, tap without net_admin', lacks('tap', 'net_admin', 'CAP_NET_ADMIN', '/dev/net/tun')
    yield 'the systemd unit grants just these', unit_grants


def unprivileged_tap(quick):
    yield 'unprivileged, tap with net_admin only: ib_write_bw', serves('tap')


GROUPS = [
    Group('unprivileged', unprivileged, mtu=XDP_MTU),
    Group('unprivileged tap', unprivileged_tap, prepare=bridge),
]
