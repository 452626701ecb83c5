"""Tests of `roci pcap`: captures of running programs, which tshark reads; readers that end early; permissions."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from lab import ROCI, Failure, Program, free_port
from pairs import Pair

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'interop/wire'))
from capture import count_icrcs

NOBODY = 65534


def roci_pcap(rocid, *args, **how):
    command = [str(ROCI), 'pcap', '--socket', rocid.socket, *args]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **how)


def end(capture):
    """Ends a capture as Ctrl-C does. Returns the numbers that it prints (frames captured, frames dropped)."""
    capture.send_signal(2)
    _, said = capture.communicate(timeout=30)
    found = re.search(r'(\d+) frames captured, (\d+) dropped', said)
    if capture.returncode != 0 or not found:
        raise Failure(f'roci pcap returned {capture.returncode}: {said}')
    return int(found[1]), int(found[2])


def wait_capturing(capture):
    line = capture.stderr.readline()
    if 'capturing' not in line:
        raise Failure(f'roci pcap: {line}{capture.stderr.read()}')


def tshark(file, *args):
    done = subprocess.run(['tshark', '-r', file, *args], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Failure(f'tshark: {done.stderr[-1500:]}')
    return done.stdout.splitlines()


def run_pingpong(rocid, gids):
    port = free_port()
    pair = Pair('ibv_rc_pingpong', '-n 100')
    server = Program(rocid, pair.command(0, port, gids, quick=False))
    server.wait_listening(port)
    client = Program(rocid, pair.command(1, port, gids, quick=False))
    if client.wait(60) != 0 or server.wait(60) != 0:
        raise Failure(f'ibv_rc_pingpong under a capture:\n{client.output()[-800:]}')


def whole_port(rocid, gids):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, 'all.pcapng')
        capture = roci_pcap(rocid, '-w', file)
        wait_capturing(capture)
        run_pingpong(rocid, gids)
        captured, dropped = end(capture)
        frames = tshark(file)
        if dropped or len(frames) != captured or captured < 4 * 100:
            raise Failure(f'{captured} frames captured, {dropped} dropped, {len(frames)} in the file')
        if bad := tshark(file, '-Y', '_ws.malformed'):
            raise Failure(f'malformed: {bad[:5]}')
        # rocid computes no ICRC for frames between loopback devices. The capture must contain it all the same.
        computed = [port['device'] for port in rocid.status()['host']['ports'] if port['icrc_in_frames']]
        right, wrong = count_icrcs(file)
        if computed or wrong or right != captured:
            raise Failure(f'{captured} frames captured: {right} right ICRCs, {wrong} wrong; devices with ICRC: {computed}')


def one_queue_pair(rocid, gids):
    """Captures one of two connected pairs of QPs under load. Frames may be dropped. The capture must contain no
    frames of the other pair."""
    port = free_port()
    pair = Pair('ib_write_bw', '-q 2 -D 20')
    sides = [Program(rocid, pair.command(0, port, gids, quick=False))]
    try:
        sides[0].wait_listening(port)
        sides.append(Program(rocid, pair.command(1, port, gids, quick=False)))
        qp = wait_connected(rocid)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, 'one.pcapng')
            capture = roci_pcap(rocid, '--qp', str(qp['qpn']), '-s', '128', '-w', file)
            wait_capturing(capture)
            time.sleep(0.5)
            captured, _ = end(capture)
            # The capture truncates each frame to 128 bytes, so only the headers can be checked.
            seen = set(tshark(file, '-T', 'fields', '-e', 'infiniband.bth.destqp'))
        if captured == 0 or {int(n, 16) for n in seen} != {qp['qpn'], qp['peer']['qpn']}:
            raise Failure(f'queue pair {qp["qpn"]} with {qp["peer"]["qpn"]}: {captured} frames, to {seen}')
    finally:
        for side in sides:
            side.kill()


def wait_connected(rocid, limit=30):
    stop = time.monotonic() + limit
    while time.monotonic() < stop:
        for session in rocid.status()['sessions']:
            for qp in session['qps']:
                if qp.get('state') == 'RTS' and qp.get('send_queued'):
                    return qp
        time.sleep(0.05)
    raise Failure(f'no queue pair at work after {limit} s')


def readers_that_leave(rocid, gids):
    """Ends captures in two ways: the test kills them, or the reader of their output closes the pipe. In both cases
    rocid must keep running and free the rings of the captures."""
    for kill in (True, False):
        for _ in range(6):  # in total more captures than rocid permits at the same time
            capture = roci_pcap(rocid, '-w', '-', stdout=subprocess.PIPE)
            wait_capturing(capture)
            run_pingpong(rocid, gids)
            (capture.kill if kill else capture.stdout.close)()
            if not kill:
                run_pingpong(rocid, gids)
            capture.wait(30)
    whole_port(rocid, gids)


def refusals(rocid, _gids):
    for args, reason in ((['--qp', '16777215'], 'no queue pair has the number'), (['-i', 'nope'], "no device 'nope'")):
        capture = roci_pcap(rocid, '-w', '/dev/null', *args)
        _, said = capture.communicate(timeout=30)
        if capture.returncode != 1 or reason not in said:
            raise Failure(f'roci pcap {args}: {capture.returncode}, {said}')
    if os.geteuid() == 0:
        os.chmod(rocid.socket, 0o666)
        os.chmod(os.path.dirname(rocid.socket), 0o755)
        capture = roci_pcap(rocid, '-w', '/dev/null', user=NOBODY, cwd='/')
        _, said = capture.communicate(timeout=30)
        if capture.returncode != 1 or 'root and the user of rocid' not in said:
            raise Failure(f'roci pcap as another user: {capture.returncode}, {said}')


CASES = {
    'roci pcap: every frame of a run, none malformed': whole_port,
    'roci pcap --qp: one queue pair of many': one_queue_pair,
    'roci pcap: readers that leave': readers_that_leave,
    'roci pcap: what it refuses': refusals,
}
