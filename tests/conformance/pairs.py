"""Runs a server and a client of the same program over one rocid, and checks the result."""
import dataclasses
import re
import shlex
import time

from lab import Failure, Program, free_port

# Words that show an error in the output of Debian's programs. Some programs print an error and return 0.
ERROR_LINE = re.compile(r"(?i)\b(errors?|failed|failure|unable|couldn't|can't|invalid|unexpected|wrong|mismatch|segmentation|assert\w*)\b")


@dataclasses.dataclass(frozen=True)
class Pair:
    """One case. Both sides get the arguments `args`. In the short run they also get the arguments `quick`."""
    program: str
    args: str = ''
    quick: str = ''
    path: tuple = ('roci0', 'roci1')  # the device of the server and the device of the client
    gid: str = 'ipv4'
    faults: bool = False
    limit: float = 60
    in_quick: bool = True

    @property
    def name(self):
        faults = ' under faults' if self.faults else ''
        return f'{self.program} {self.args}'.strip() + f', {self.path[0]} to {self.path[1]}, {self.gid}{faults}'

    def command(self, side, port, gids, quick):
        device = self.path[side]
        perftest = self.program.startswith('ib_')
        words = [self.program, '-d', device, '-p', str(port), '-x' if perftest else '-g', str(gids[device][self.gid])]
        words += ['-F'] if perftest else []
        words += shlex.split(self.args) + (shlex.split(self.quick) if quick else [])
        return words + (['127.0.0.1'] if side == 1 else [])


def expected_lines(pair):
    """Returns the minimum number of result lines of the client, and the pattern of such a line."""
    if pair.program == 'ibv_xsrq_pingpong':  # ibv_xsrq_pingpong prints no figures
        return 1, r'^success$'
    if pair.program.startswith('ibv_'):
        return 1, r'^\d+ iters in [\d.]+ seconds'
    sizes = 23 if re.search(r'(^|\s)(-a|--all)\b', pair.args) else 1
    return sizes, r'^\s+\d+\s+\d+\s+[\d.]+\s+[\d.]+'


def judge_output(pair, who, text, must_show):
    for line in text.splitlines():
        if ERROR_LINE.search(line):
            raise Failure(f'{who} printed an error line: {line.strip()}')
    count, pattern = expected_lines(pair)
    found = len(re.findall(pattern, text, re.M))
    if must_show and found < count:
        raise Failure(f'{who} printed {found} result lines, {count} wanted:\n{text[-1500:]}')


def run_pair(rocid, pair, gids, quick):
    """Runs both programs of a pair. Raises Failure if one of them fails."""
    port = free_port()
    server = Program(rocid, pair.command(0, port, gids, quick))
    client = None
    try:
        server.wait_listening(port)
        client = Program(rocid, pair.command(1, port, gids, quick))
        end = time.monotonic() + pair.limit
        wait_both(server, client, end)
    finally:
        for program in (client, server):
            if program and program.process.poll() is None:
                program.kill()
    rocid.check_alive()
    for who, program in (('server', server), ('client', client)):
        if program.process.returncode != 0:
            raise Failure(f'{who} returned {program.process.returncode}:\n{both_outputs(server, client)}')
    judge_output(pair, 'server', server.output(), must_show=pair.program.startswith('ibv_'))
    judge_output(pair, 'client', client.output(), must_show=True)


def wait_both(server, client, end):
    """Waits until both programs end, but not longer than the time `end`. If one program fails, waits at most five
    more seconds for the other program."""
    while server.process.poll() is None or client.process.poll() is None:
        failed = [p for p in (server, client) if p.process.poll() not in (None, 0)]
        if failed:
            end = min(end, time.monotonic() + 5)
        if time.monotonic() > end:
            why = 'one side failed, the other hangs' if failed else 'too slow or hanging'
            raise Failure(f'{why}:\n{both_outputs(server, client)}')
        time.sleep(0.02)


def both_outputs(server, client):
    return f'--- server\n{server.output()[-1200:]}\n--- client\n{client.output()[-1200:]}'


def by_hand(rocid, pair, gids, quick):
    port = free_port()
    return '  &  sleep 1;  '.join(rocid.by_hand(pair.command(side, port, gids, quick)) for side in (0, 1))
