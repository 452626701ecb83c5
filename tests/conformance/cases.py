"""The table of cases: programs of Debian, and arguments that must work with rocid."""
import itertools

from pairs import Pair

LOOP = ('roci0', 'roci1')
SELF = ('roci0', 'roci0')

# --- ibv_rc_pingpong --------------------------------------------------------------------------------------------------

# One row per case. The row contains the arguments, and further arguments that only the short run uses.
PINGPONG = [
    ('', ''),
    ('-s 1', ''),
    ('-s 1048576', '-n 100'),
    ('-m 256', ''),
    ('-m 512', ''),
    ('-m 1024', ''),
    ('-m 2048', ''),
    ('-m 4096', ''),
    ('-e', ''),
    ('-n 100000', '-n 10000'),
    ('-c', ''),
    ('-c -s 1048576', '-n 50'),
    ('-c -e -m 512 -s 100000', '-n 100'),
    ('-c -s 5001 -m 256', ''),
]


def pingpongs():
    for (args, quick), path, gid in itertools.product(PINGPONG, (LOOP, SELF), ('ipv4', 'ipv6')):
        usual = path == LOOP and gid == 'ipv4'
        yield Pair('ibv_rc_pingpong', args, quick, path, gid, limit=120, in_quick=usual or args in ('', '-c', '-e'))


# --- perftest ---------------------------------------------------------------------------------------------------------

BANDWIDTH = ('ib_send_bw', 'ib_write_bw', 'ib_read_bw')
LATENCY = ('ib_send_lat', 'ib_write_lat', 'ib_read_lat')
WITH_EVENTS = ('ib_send_bw', 'ib_read_bw', 'ib_send_lat', 'ib_read_lat')  # the other programs have no option -e


def perftests():
    for program in BANDWIDTH:
        yield Pair(program, '', '-n 500')
        yield Pair(program, '-a', '-n 20', limit=180)
        yield Pair(program, '-q 16', '-n 100')
        yield Pair(program, '-b', '-n 500')
        yield Pair(program, '-b -a', '-n 20', limit=180, in_quick=False)
        yield Pair(program, '-b -q 16 -a -n 200', limit=600, in_quick=False)  # perftest's default of 1000 per QP would transfer half a terabyte
    for program in LATENCY:
        yield Pair(program, '', '-n 200')
        yield Pair(program, '-a', '-n 10', limit=180)
    for program in WITH_EVENTS:
        yield Pair(program, '-e', '-n 500')
        yield Pair(program, '-e -a', '-n 20', limit=180, in_quick=False)
    for program in BANDWIDTH + LATENCY:
        yield Pair(program, '', '-n 200', gid='ipv6')
        yield Pair(program, '', '-n 500', path=SELF, in_quick=False)
        for mtu in (256, 1024, 4096):
            yield Pair(program, f'-m {mtu} -s 20000', '-n 100', in_quick=mtu == 256 and program in BANDWIDTH)


# --- every transport --------------------------------------------------------------------------------------------------

# One row per case. The row contains the program, its arguments, and further arguments that only the short run uses.
TRANSPORTS = [
    ('ibv_uc_pingpong', '-s 8192', '-n 300'),
    ('ibv_uc_pingpong', '-e', '-n 300'),
    ('ibv_ud_pingpong', '-s 2048', '-n 300'),
    ('ibv_ud_pingpong', '-e', '-n 300'),
    ('ibv_srq_pingpong', '-q 8', '-n 300'),
    ('ibv_srq_pingpong', '-e -q 4', '-n 300'),
    ('ibv_xsrq_pingpong', '', '-n 300'),
    ('ibv_xsrq_pingpong', '-e', '-n 300'),
    *(('ib_send_bw', f'-c {transport}', '-n 500') for transport in ('UC', 'UD', 'XRC')),
    *(('ib_send_lat', f'-c {transport}', '-n 200') for transport in ('UC', 'UD', 'XRC')),
    *((f'ib_write_{what}', f'-c {transport}', '-n 200') for what in ('bw', 'lat') for transport in ('UC', 'XRC')),
    *((f'ib_read_{what}', '-c XRC', '-n 200') for what in ('bw', 'lat')),
    *((f'ib_atomic_{what}', f'-A {how}{transport}', '-n 200')
      for what in ('bw', 'lat') for how in ('CMP_AND_SWAP', 'FETCH_AND_ADD') for transport in ('', ' -c XRC')),
    ('ib_send_bw', '--use-srq -q 8', '-n 100'),
]


def transports():
    for program, args, quick in TRANSPORTS:
        yield Pair(program, args, quick)
        yield Pair(program, args, quick, gid='ipv6', in_quick=program.startswith('ibv_') and '-e' not in args)


# --- under faults: all programs must succeed -------------------------------------------------------------------------

def under_faults():
    for args, quick in (('-c', '-n 300'), ('-c -s 1048576', '-n 10'), ('-c -e -m 512 -s 100000', '-n 50')):
        for gid in ('ipv4', 'ipv6'):
            yield Pair('ibv_rc_pingpong', args, quick, gid=gid, faults=True, limit=300, in_quick=gid == 'ipv4')
    for program in BANDWIDTH + LATENCY:
        yield Pair(program, '', '-n 200', faults=True, limit=300)
        yield Pair(program, '-a -n 100', '-n 5', faults=True, limit=600, in_quick=False)
    for program in BANDWIDTH:
        yield Pair(program, '-q 16 -n 200', '-n 50', faults=True, limit=300)
        yield Pair(program, '-b -n 500', '-n 100', faults=True, limit=300, in_quick=False)


def pairs(quick):
    every = [*pingpongs(), *perftests(), *transports(), *under_faults()]
    return [p for p in every if p.in_quick] if quick else every
