#!/usr/bin/env python3
"""Tests addresses and neighbours with two rocids in a network namespace.

The port of the first rocid is a TAP without a kernel interface, so this rocid itself replies to ARP, ND and ping. The port of the second rocid
is a packet socket on the kernel's end of the TAP, so its addresses, routes and neighbours are the kernel's.

    tests/interop/addresses/run.py [--only TEXT]
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'conformance'))
import lab  # noqa: E402

NAMESPACE = f'roci-addr-{os.getpid()}'
INSIDE = ['ip', 'netns', 'exec', NAMESPACE]
ALONE, KERNEL = {'ipv4': '10.98.0.1', 'ipv6': 'fd98::1'}, {'ipv4': '10.98.0.2', 'ipv6': 'fd98::2'}
CONFIGS = {
    'alone': '[[device]]\nname = "roci0"\nport = "tap"\ninterface = "rtap0"\nmac = "02:00:00:00:98:01"\n'
             'addresses = ["10.98.0.1/24", "fd98::1/64"]\ngateways = ["10.98.0.2"]\nmtu = 1024\n',
    'kernel': '[[device]]\nname = "roci1"\nport = "af_packet"\ninterface = "rtap0"\nmtu = 1024\n',
}


class Rocid(lab.Rocid):
    """A rocid in the network namespace."""

    def __init__(self, config):
        super().__init__(config)
        self.command = INSIDE + self.command

    def command_of(self, program):
        return INSIDE + super().command_of(program)


def ip(*words, check=True):
    return subprocess.run(['ip', '-n', NAMESPACE, *words], check=check, capture_output=True, text=True).stdout


def must(condition, what):
    if not condition:
        raise lab.Failure(what)


def ping(address, *words):
    done = subprocess.run([*INSIDE, 'busybox', 'ping', '-c', '3', '-W', '5', *words, address], capture_output=True, text=True, timeout=30, check=False)
    must(done.returncode == 0, f'ping {address}: {done.stdout[-300:]}{done.stderr[-300:]}')


def sum_of(rocid, name):
    return sum(e['counters'][name] for e in rocid.status()['host']['engines'])


def answers_ping(alone, _):
    for address in ALONE.values():
        ping(address)
    ping(ALONE['ipv4'], '-s', '1000')
    for family, address in ALONE.items():
        found = ip('neigh', 'show', address, 'dev', 'rtap0')
        must('02:00:00:00:98:01' in found, f'the kernel does not know {family}: {found}')
    must(sum_of(alone, 'other_sent') >= 9, 'answers are not counted')
    must(alone.status()['neighbours']['echoes_answered'] >= 9, 'echoes are not counted')


def gid_of(rocid, device, address):
    text = lab.run_once(rocid, ['ibv_devinfo', '-v', '-d', device])
    wanted = f'::ffff:{address}' if '.' in address else address
    found = re.search(rf'GID\[\s*(\d+)\]:\s*{re.escape(wanted)}[,\s]', text)
    return int(found.group(1)) if found else None


def pingpong(server, client, family):
    """Runs a pair of programs. `server` and `client` are tuples (rocid, device, address)."""
    port = lab.free_port()

    def command(end):
        gid = gid_of(end[0], end[1], end[2][family])
        must(gid is not None, f'{end[1]} has no GID for {end[2][family]}')
        return ['ibv_rc_pingpong', '-d', end[1], '-g', str(gid), '-n', '50', '-s', '3000', '-m', '1024', '-p', str(port)]
    one = lab.Program(server[0], command(server))
    time.sleep(1.5)
    two = lab.Program(client[0], command(client) + [KERNEL['ipv4']])  # the programs exchange their parameters over TCP of the kernel
    for program in (two, one):
        try:
            code = program.wait(40)
        finally:
            if program is two and two.process.poll() is None:
                one.kill()
        must(code == 0, f'{family}: {code}\n{one.output()}\n{two.output()}')


def talk(alone, kernel):
    ends = (alone, 'roci0', ALONE), (kernel, 'roci1', KERNEL)
    for family in ('ipv4', 'ipv6'):
        ip('neigh', 'flush', 'dev', 'rtap0')
        pingpong(*ends, family)
        pingpong(*reversed(ends), family)


def gids_follow(_, kernel):
    watch = lab.Program(kernel, ['ibv_asyncwatch', '-d', 'roci1'])
    time.sleep(1)
    must(gid_of(kernel, 'roci1', '10.98.7.7') is None, 'it has the address already')
    before = gid_of(kernel, 'roci1', KERNEL['ipv6'])
    ip('address', 'add', '10.98.7.7/24', 'dev', 'rtap0')
    await_gid(kernel, '10.98.7.7', True)
    ip('address', 'delete', '10.98.7.7/24', 'dev', 'rtap0')
    await_gid(kernel, '10.98.7.7', False)
    must(gid_of(kernel, 'roci1', KERNEL['ipv6']) == before, 'another GID has moved')
    time.sleep(0.5)
    watch.kill()
    must(watch.output().count('IBV_EVENT_GID_CHANGE') == 2, f'events: {watch.output()}')


def await_gid(rocid, address, there):
    end = time.monotonic() + 5
    while (gid_of(rocid, 'roci1', address) is not None) != there:
        must(time.monotonic() < end, f'{address} {"does not come" if there else "does not go"}')
        time.sleep(0.1)


def nobody_there(alone, kernel):
    for rocid, device, own, nobody in ((alone, 'roci0', ALONE, '10.98.0.77'), (kernel, 'roci1', KERNEL, '10.98.0.78')):
        start = time.monotonic()
        program = lab.Program(rocid, ['rping', '-c', '-a', nobody, '-C', '1'])
        program.wait(20)
        must('ADDR_ERROR' in program.output(), f'{device}: {program.output()}')
        must(time.monotonic() - start < 10, f'{device}: it takes {time.monotonic() - start:.1f} s')


def names_where_tools_look(_, kernel):
    ports = '/sys/class/infiniband/roci1/ports/1'
    index = gid_of(kernel, 'roci1', KERNEL['ipv4'])
    must(lab.run_once(kernel, ['cat', f'{ports}/gid_attrs/types/{index}']).strip() == 'RoCE v2', 'type')
    must(lab.run_once(kernel, ['cat', f'{ports}/gid_attrs/ndevs/{index}']).strip() == 'rtap0', 'netdev')


CASES = {
    'a port without a kernel answers ARP, ND and ping': answers_ping,
    'a port without a kernel and one with it find each other': talk,
    'GIDs follow the addresses of the interface': gids_follow,
    'an address that nobody has is an error, in time': nobody_there,
    'GID types and netdev names where tools look': names_where_tools_look,
}


def start(stack):
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='roci-addr-')))
    subprocess.run(['ip', 'netns', 'add', NAMESPACE], check=True)
    stack.callback(subprocess.run, ['ip', 'netns', 'delete', NAMESPACE], check=False)
    ip('link', 'set', 'lo', 'up')
    rocids = []
    for name, text in CONFIGS.items():
        config = folder / f'{name}.toml'
        config.write_text('[engine]\nmax_sleep_us = 200\n[memory]\nmbufs = 2048\n' + text)
        rocids.append(stack.enter_context(Rocid(config)))
        if name == 'alone':  # DPDK gives the kernel's end the MAC address of rocid's end, so a different one must be set
            ip('link', 'set', 'rtap0', 'address', '02:00:00:00:98:02', 'mtu', '1500')
            for family, address in KERNEL.items():
                ip('address', 'add', f'{address}/{24 if family == "ipv4" else 64}', 'dev', 'rtap0', *(['nodad'] if family == 'ipv6' else []))
            ip('link', 'set', 'rtap0', 'up')
    return rocids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--only', default='', metavar='TEXT')
    options = parser.parse_args()
    chosen = {name: case for name, case in CASES.items() if options.only in name}
    if os.geteuid() != 0 or not os.path.exists('/dev/net/tun') or shutil.which('busybox') is None:
        print('SKIP all: it takes root, /dev/net/tun and busybox')
        print(f'0 passed, 0 failed, {len(chosen)} skipped')
        return 0
    passed = failed = 0
    with contextlib.ExitStack() as stack:
        rocids = start(stack)
        for name, case in chosen.items():
            begin = time.monotonic()
            try:
                case(*rocids)
                passed += 1
                print(f'PASS {time.monotonic() - begin:6.1f} s  {name}', flush=True)
            except Exception as error:
                failed += 1
                why = str(error) if isinstance(error, lab.Failure) else traceback.format_exc()
                print(f'FAIL {time.monotonic() - begin:6.1f} s  {name}\n    ' + why.strip().replace('\n', '\n    '), flush=True)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
