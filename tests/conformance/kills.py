"""Either side is killed by SIGKILL at any time. rocid must keep serving and must free all objects of the killed
program."""
import dataclasses
import random
import time

from connections import ADDRESS
from lab import Failure, Program, free_port
from pairs import Pair, run_pair

SETTLE_LIMIT = 10  # maximum number of seconds until rocid has freed the objects of a killed client

# Programs that run so long that they can be killed during their traffic. Short delays kill them during registration
# or connection set-up.
VICTIMS = [
    Pair('ibv_rc_pingpong', '-n 10000000 -e'),
    Pair('ibv_rc_pingpong', '-n 10000000 -s 1048576', path=('roci0', 'roci0')),
    Pair('ib_write_bw', '-D 60'),
    Pair('ib_read_bw', '-D 60 -s 1048576', gid='ipv6'),
    Pair('ib_send_bw', '-D 60 -q 16'),
    Pair('ib_send_lat', '-D 60 -s 100000'),
]
DELAYS = (0.0, 0.02, 0.1, 0.5, 1.0)
CHECK_EVERY = 10
CHECK = Pair('ibv_rc_pingpong', '-c -n 200')


@dataclasses.dataclass
class Round:
    pair: Pair
    victim: int  # 0: the server, 1: the client
    delay: float  # seconds after the start of the client

    def __str__(self):
        return f'{self.pair.name}: {("server", "client")[self.victim]} killed after {self.delay * 1000:.0f} ms'


def make_rounds(count, seed):
    rng = random.Random(seed)
    return [Round(rng.choice(VICTIMS), rng.randrange(2), rng.choice(DELAYS) * rng.random()) for _ in range(count)]


def play(rocid, one, gids):
    """Kills one program of a pair, the victim. If the victim is the server and its delay is below 20 ms, starts and
    kills only the server. Otherwise starts both programs, kills the victim after its delay, and then kills the other
    program."""
    port = free_port()
    sides = [Program(rocid, one.pair.command(0, port, gids, quick=False))]
    try:
        if one.victim == 0 and one.delay < 0.02:
            time.sleep(random.random() * 0.2)  # kills the server during its start
        else:
            sides[0].wait_listening(port)
            sides.append(Program(rocid, one.pair.command(1, port, gids, quick=False)))
            time.sleep(one.delay)
            sides[one.victim].kill()
            time.sleep(random.random() * 0.1)
    finally:
        for side in sides:
            side.kill()


def wait_for_totals(rocid, wanted):
    end = time.monotonic() + SETTLE_LIMIT
    while True:
        now = rocid.totals()
        if now == wanted:
            return
        if time.monotonic() > end:
            changed = {key: f'{wanted.get(key)} -> {value}' for key, value in now.items() if wanted.get(key) != value}
            raise Failure(f'rocid still holds what the dead left behind after {SETTLE_LIMIT} s: {changed}\nopen files: {rocid.open_files()}')
        time.sleep(0.05)


class Bystander:
    """A pair of rpings that runs during all kills. rping compares the returned bytes."""

    def __init__(self, rocid):
        port = str(free_port())
        address = ADDRESS['roci0']['ipv4']
        self.rocid = rocid
        self.sides = [Program(rocid, ['rping', '-s', '-V', '-a', address, '-p', port, '-C', '100000000'])]
        end = time.monotonic() + SETTLE_LIMIT
        while not rocid.status()['rdma_cm']['listeners'] and time.monotonic() < end:
            time.sleep(0.05)
        self.sides.append(Program(rocid, ['rping', '-c', '-V', '-a', address, '-p', port, '-C', '100000000']))
        self.seen = self.messages()
        while self.messages() == self.seen and time.monotonic() < end:
            time.sleep(0.05)

    def messages(self):
        return sum(qp.get('counters', {}).get('tx_messages', 0) for s in self.rocid.status()['sessions'] if s['program'] == 'rping' for qp in s['qps'])

    def check(self):
        now = self.messages()
        if any(side.process.poll() is not None for side in self.sides) or now <= self.seen:
            raise Failure(f'a bystander was hurt ({now} messages, {self.seen} before):\n' + '\n'.join(s.output()[-800:] for s in self.sides))
        self.seen = now

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for side in self.sides:
            side.kill()


def storm(rocid, gids, count, seed):
    """Executes `count` kills. The same seed gives the same victims and delays, but the exact times differ between
    runs."""
    run_pair(rocid, CHECK, gids, quick=False)  # rocid creates some objects once and keeps them, so `before` must include them
    before = rocid.totals()
    with Bystander(rocid) as bystander:
        rounds_of_kills(rocid, gids, count, seed, bystander)
    wait_for_totals(rocid, before)


def rounds_of_kills(rocid, gids, count, seed, bystander):
    wanted = rocid.totals()
    for number, one in enumerate(make_rounds(count, seed), 1):
        try:
            play(rocid, one, gids)
            rocid.check_alive()
            wait_for_totals(rocid, wanted)
            if number % CHECK_EVERY == 0 or number == count:
                bystander.check()
                run_pair(rocid, CHECK, gids, quick=False)
                wait_for_totals(rocid, wanted)
        except Failure as failure:
            raise Failure(f'kill {number} of {count} (seed {seed}; {one}): {failure}') from failure
