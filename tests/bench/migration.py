#!/usr/bin/env python3
"""Measures how long QEMU takes to move a machine's memory to another host: over RDMA on port = "udp", and over TCP on the same veth.

    tests/bench/migration.py [--build DIR] [--rounds N] [--mib N] [--mtu N] [--pin]

The memory has random bytes. The destination must have the same bytes afterwards. Alternates TCP and RDMA. Prints the times that QEMU
reports and the ratio of their medians. Needs root and a QEMU with RDMA.
"""
import argparse
import hashlib
import itertools
import json
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
PORT = itertools.count(19500)
AT = 16 << 20  # offset of the random bytes in the guest's memory; the other memory is empty


class Machine:
    """An emulated machine without a disk. Its processor is stopped."""

    def __init__(self, host, folder, name, words, rdma):
        self.path = f'{folder}/{name}.qmp'
        qemu = ['qemu-system-x86_64', '-machine', 'q35,accel=tcg', '-nodefaults', '-display', 'none', '-S', '-qmp', f'unix:{self.path},server=on,wait=off', *words]
        self.program = host.rdma(' '.join(qemu)) if rdma else hosts.Program([*host.inside, *qemu])
        self.socket = socket.socket(socket.AF_UNIX)
        hosts.Network.wait(self.connects, 'QEMU does not start', 30)
        self.file = self.socket.makefile('rw')
        self.file.readline()
        self.ask('qmp_capabilities')

    def connects(self):
        if self.program.process.poll() is not None:
            raise hosts.Failure(f'QEMU has ended:\n{self.program.output()}')
        try:
            self.socket.connect(self.path)
            return True
        except OSError:
            return False

    def ask(self, command, **arguments):
        self.file.write(json.dumps({'execute': command, 'arguments': arguments}) + '\n')
        self.file.flush()
        for line in self.file:
            said = json.loads(line)
            if 'return' in said:
                return said['return']
            if 'error' in said:
                raise hosts.Failure(f'{command}: {said["error"]["desc"]}\n{self.program.output()[-800:]}')
        raise hosts.Failure(f'{command}: QEMU has ended:\n{self.program.output()[-800:]}')

    def digest(self, folder, size):
        path = f'{folder}/memory'
        self.ask('pmemsave', val=AT, size=size, filename=path)
        with open(path, 'rb') as file:
            return hashlib.file_digest(file, 'sha256').hexdigest()

    def close(self):
        self.socket.close()
        self.program.kill()


def migrate(net, folder, kind, options, content):
    """Migrates a machine once. Returns the duration in milliseconds, as QEMU reports it."""
    rdma, port = kind == 'rdma', next(PORT)
    uri = f'{kind}:{net.a.ipv4}:{port}'
    memory = ['-m', f'{options.mib + 64}M']
    target = source = None
    try:
        target = Machine(net.a, folder, 'target', [*memory, '-incoming', 'defer'], rdma)
        source = Machine(net.b, folder, 'source', [*memory, '-device', f'loader,file={content},addr={AT},force-raw=on'], rdma)
        for machine in (target, source):
            if rdma:
                machine.ask('migrate-set-capabilities', capabilities=[{'capability': 'rdma-pin-all', 'state': options.pin}])
            machine.ask('migrate-set-parameters', **{'max-bandwidth': 100 << 30})
        target.ask('migrate-incoming', uri=uri)
        source.ask('migrate', uri=uri)
        end = time.monotonic() + 120
        while (said := source.ask('query-migrate')).get('status') not in ('completed', 'failed', 'cancelled') and time.monotonic() < end:
            time.sleep(0.02)
        if said.get('status') != 'completed':
            raise hosts.Failure(f'{uri}: {said}\nsource: {source.program.output()[-800:]}\ntarget: {target.program.output()[-800:]}')
        if target.digest(folder, options.mib << 20) != options.digest:
            raise hosts.Failure(f'{uri}: the destination has other bytes')
        return said['total-time']
    finally:
        for machine in (source, target):
            if machine is not None:
                machine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=TOP / 'build')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--mib', type=int, default=512)
    parser.add_argument('--mtu', type=int, default=1500)
    parser.add_argument('--pin', action='store_true', help='make QEMU register all memory before the migration (rdma-pin-all)')
    options = parser.parse_args()
    global hosts
    os.environ['ROCI_BUILD'] = str(options.build.resolve())
    sys.path.append(str(TOP / 'tests/interop/hosts'))
    import hosts
    if why := hosts.why_not():
        sys.exit(why)
    times = {'tcp': [], 'rdma': []}
    with tempfile.TemporaryDirectory(prefix='roci-migration-') as folder, hosts.Network(options.mtu, judged=False) as net:
        content = os.urandom(options.mib << 20)
        options.digest = hashlib.sha256(content).hexdigest()
        pathlib.Path(f'{folder}/content').write_bytes(content)
        del content
        for host in (net.a, net.b):
            host.start(host.device('udp'))
        for _ in range(options.rounds):
            for kind, all_times in times.items():
                all_times.append(migrate(net, folder, kind, options, f'{folder}/content'))
    for kind, all_times in times.items():
        print(f'{options.mib} MiB over {kind}, MTU {options.mtu}: median {statistics.median(all_times):.0f} ms of {all_times}')
    print(f'RDMA takes {statistics.median(times["rdma"]) / statistics.median(times["tcp"]):.2f} times as long as TCP')


if __name__ == '__main__':
    main()
