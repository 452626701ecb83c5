"""rocid is killed by SIGKILL while two programs wait in different ways. Both programs must end with an error, and one
of them must print that rocid has ended."""
import dataclasses
import shlex
import shutil
import time

from connections import ADDRESS
from fabric import VERBS
from lab import Failure, Program, Rocid, free_port, gid_indexes
from pairs import Pair, both_outputs
from single import DEVICES

LIMIT = 20  # maximum number of seconds to wait for a server, for traffic, and for programs after the end of rocid
NOTICED = 1  # maximum number of seconds from the kill of rocid to the end of each program
LINE = 'connection to rocid at '


@dataclasses.dataclass(frozen=True)
class Ending:
    """One case: the commands of both sides, and the sides that must return an error."""
    name: str
    server: str
    client: str
    environment: tuple = ({}, {})
    failing: tuple = (0, 1)
    listens: bool = True  # the server listens on a TCP port

    def run(self):
        with Rocid() as rocid:
            gids = {device: gid_indexes(rocid, device) for device in DEVICES}
            port = free_port()
            words = {'port': port, 'g0': gids['roci0']['ipv4'], 'g1': gids['roci1']['ipv4'], 'to': ADDRESS['roci0']['ipv4']}
            sides = []
            try:
                for side, command in enumerate((self.server, self.client)):
                    sides.append(Program(rocid, shlex.split(command.format(**words)), self.environment[side]))
                    if side == 0:
                        self.wait_for_server(rocid, sides[0], port)
                wait_for_traffic(rocid, sides)
                rocid.process.kill()
                self.judge(sides, time.monotonic())
            finally:
                for program in sides:
                    program.kill()

    def wait_for_server(self, rocid, server, port):
        if self.listens:
            return server.wait_listening(port)
        end = time.monotonic() + LIMIT
        while not rocid.status()['rdma_cm']['listeners']:
            if time.monotonic() > end:
                raise Failure(f'the server does not listen after {LIMIT} s:\n{server.output()}')
            time.sleep(0.05)
        return None

    def judge(self, sides, killed):
        for side, program in enumerate(sides):
            code = program.wait(max(1, killed + LIMIT - time.monotonic()))
            if (took := time.monotonic() - killed) > NOTICED:
                raise Failure(f'{("server", "client")[side]} ended {took:.2f} s after rocid, {NOTICED} s allowed:\n{both_outputs(*sides)}')
            if code == 0 and side in self.failing:
                raise Failure(f'{("server", "client")[side]} returned 0 although rocid was killed under it:\n{both_outputs(*sides)}')
        if not any(LINE in program.output() for program in sides):
            raise Failure(f'nobody says that rocid is gone:\n{both_outputs(*sides)}')


def wait_for_traffic(rocid, sides):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        counters = [qp.get('counters', {}) for s in rocid.status()['sessions'] for qp in s['qps']]
        if sum(c.get('tx_messages', 0) for c in counters) > 100:
            return
        if any(program.process.poll() is not None for program in sides):
            break
        time.sleep(0.05)
    raise Failure(f'no traffic after {LIMIT} s:\n{both_outputs(*sides)}')


def of_pair(name, pair, failing=(0, 1)):
    gids = {'roci0': {'ipv4': '{g0}'}, 'roci1': {'ipv4': '{g1}'}}
    commands = [shlex.join(pair.command(side, '{port}', gids, quick=False)).replace("'", '') for side in (0, 1)]
    return Ending(name, *commands, failing=failing)


UCX = tuple({'UCX_TLS': VERBS, 'UCX_NET_DEVICES': f'{device}:1'} for device in DEVICES)
ENDINGS = [
    of_pair('a bare poll loop (ibv_rc_pingpong)', Pair('ibv_rc_pingpong', '-n 100000000')),
    of_pair('a program that sleeps for events (ibv_rc_pingpong -e)', Pair('ibv_rc_pingpong', '-e -n 100000000')),
    of_pair('ib_write_bw -D', Pair('ib_write_bw', '-D 60')),
    of_pair('ib_send_lat -e', Pair('ib_send_lat', '-e -n 5000000')),
    of_pair('ib_send_bw over an SRQ', Pair('ib_send_bw', '--use-srq -q 4 -D 60')),
    Ending('rping', 'rping -s -a {to} -p {port} -C 100000000', 'rping -c -a {to} -p {port} -C 100000000', listens=False),
    Ending('ucx_perftest', 'ucx_perftest -p {port}', 'ucx_perftest -p {port} localhost -t tag_lat -n 100000000', environment=UCX),
]
CASES = {f'kill -9 of rocid under {e.name}': (e.run, lambda e=e: missing(e)) for e in ENDINGS}


def missing(ending):
    program = ending.server.split()[0]
    return None if shutil.which(program) else f'{program} is not installed (./dev setup)'
