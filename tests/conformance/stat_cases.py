"""Tests of counters: `roci stat` compared with a capture and with the files in /sys, and the options of `roci
stat`."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pcap
from lab import ROCI, Failure, Program, Rocid, run_once

MTU_FILES = 'cd /sys/class/infiniband/roci0/ports/1 && for f in counters/* hw_counters/*; do echo $f $(cat $f); done'


def roci_stat(rocid, *arguments, code=0):
    done = subprocess.run([ROCI, 'stat', '--socket', rocid.socket, *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != code:
        raise Failure(f'roci stat {" ".join(arguments)} returned {done.returncode}: {done.stdout}{done.stderr}')
    return done.stdout if code == 0 else done.stderr


def sample(rocid):
    """Returns the counters as {device: {counter: value}}."""
    shown = json.loads(roci_stat(rocid, '--json', '--interval', '0'))
    return {d['name']: d['counters'] for d in shown['devices']}


def grown(before, after, device):
    return {name: value - before[device][name] for name, value in after[device].items()}


def as_a_capture(rocid, gids):
    """Compares the counters of frames and bytes per direction with a capture. Compares the counters of messages with
    the number of messages that the programs sent."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / 'stat.pcapng')
        before = sample(rocid)
        capture = pcap.roci_pcap(rocid, '-i', 'roci0', '-w', file)
        pcap.wait_capturing(capture)
        pcap.run_pingpong(rocid, gids)
        _, dropped = pcap.end(capture)
        counted = grown(before, sample(rocid), 'roci0')
        if dropped:
            raise Failure(f'{dropped} frames dropped from the capture')
        rows = [line.split('\t') for line in pcap.tshark(file, '-T', 'fields', '-e', 'frame.len', '-e', 'ip.src')]
    directions = {}
    for length, source in rows:
        count, octets = directions.get(source, (0, 0))
        directions[source] = (count + 1, octets + int(length))
    found = sorted(directions.values())
    wanted = sorted([(counted['tx_frames'], counted['tx_octets']), (counted['rx_frames'], counted['rx_octets'])])
    if found != wanted:
        raise Failure(f'the capture has (frames, bytes) {found} by direction, the counters {wanted}')
    if counted['rx_messages'] != 100 or counted['tx_messages'] != 100:
        raise Failure(f'100 messages in each direction: {counted["tx_messages"]} sent, {counted["rx_messages"]} received')


def files_are_live(rocid, gids):
    """A running program must see that a counter in /sys changes. The values of three files must be equal to those of
    `roci stat`. The unit of port_*_data is four bytes."""
    watcher = Program(rocid, ['sh', '-c', 'f=/sys/class/infiniband/roci0/ports/1/counters/port_xmit_packets; a=$(cat $f); echo first $a; '
                                          'while [ "$(cat $f)" = "$a" ]; do sleep 0.05; done; echo moved'])
    end = time.monotonic() + 20
    while 'first' not in watcher.output() and time.monotonic() < end:
        time.sleep(0.05)
    pcap.run_pingpong(rocid, gids)
    if watcher.wait(20) != 0 or 'moved' not in watcher.output():
        raise Failure(f'port_xmit_packets stood still: {watcher.output()}')
    files = dict(line.split() for line in run_once(rocid, ['sh', '-c', MTU_FILES]).splitlines())
    now = sample(rocid)['roci0']
    wanted = {'counters/port_xmit_packets': now['tx_frames'], 'counters/port_rcv_data': now['rx_octets'] // 4, 'hw_counters/out_of_sequence': now['out_of_order']}
    if wrong := {f: (files.get(f), value) for f, value in wanted.items() if files.get(f) != str(value)}:
        raise Failure(f'files differ from roci stat (file, counter): {wrong}')


def members(namespace):
    """Returns the ids of the processes in this mount namespace."""
    found = set()
    for link in pathlib.Path('/proc').glob('[0-9]*/ns/mnt'):
        try:
            if os.readlink(link) == namespace:
                found.add(int(link.parts[2]))
        except OSError:
            pass
    return found


def helper_ends_with_its_program(rocid, _):
    """The process that updates the files must not be a child of the program. It must end when the program ends."""
    text = run_once(rocid, ['sh', '-c', 'readlink /proc/self/ns/mnt; cat /proc/$$/task/$$/children'])
    namespace, *children = text.split()
    if len(children) != 1:  # the only permitted child is the `cat` above
        raise Failure(f'the program has children that it did not start: {text}')
    end = time.monotonic() + 10
    while members(namespace) and time.monotonic() < end:
        time.sleep(0.05)
    if left := members(namespace):
        raise Failure(f'{left} still in the view of a program that has ended')


def rates_and_width(rocid, gids):
    del gids
    text = roci_stat(rocid, '--interval', '0.1', '--all')
    if long := [line for line in text.splitlines() if len(line) > 100]:
        raise Failure(f'wider than 100 columns: {long[:3]}')
    if 'per second' not in text or 'roci1' not in text or 'engine 0' not in text:
        raise Failure(f'no rates, devices or engines:\n{text}')
    if 'per second' in roci_stat(rocid, '--interval', '0'):
        raise Failure('rates without an interval')


def watch_ends_cleanly(rocid, gids):
    del gids
    watch = subprocess.Popen([ROCI, 'stat', '--socket', rocid.socket, '--watch', '--interval', '0.1', '--json'], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
    watch.send_signal(signal.SIGINT)
    _, said = watch.communicate(timeout=20)
    if watch.returncode != 0 or said or any(line['seconds'] <= 0 for line in lines):
        raise Failure(f'--watch returned {watch.returncode} at SIGINT: {said}')


def refusals(rocid, gids):
    del gids
    for arguments, word in ((['-i', 'nosuch'], 'no device'), (['--watch', '--interval', '0'], 'interval')):
        if word not in roci_stat(rocid, *arguments, code=1):
            raise Failure(f'roci stat {arguments}: the reason does not say {word!r}')


def rocid_ends():
    """`roci stat --watch` must report the end of rocid."""
    with Rocid() as rocid:
        watch = subprocess.Popen([ROCI, 'stat', '--socket', rocid.socket, '--watch', '--interval', '0.1'], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        watch.stdout.readline()
        rocid.process.terminate()
        _, said = watch.communicate(timeout=20)
        if watch.returncode != 1 or 'ended' not in said:
            raise Failure(f'--watch returned {watch.returncode} as rocid ended: {said}')


CASES = {
    'roci stat counts what a capture has': as_a_capture,
    'counters in /sys move': files_are_live,
    'nothing is left of the counters in /sys': helper_ends_with_its_program,
    'roci stat shows rates within 100 columns': rates_and_width,
    'roci stat --watch ends at SIGINT': watch_ends_cleanly,
    'roci stat refuses with a reason': refusals,
}
ALONE = {'roci stat --watch notices the end of rocid': rocid_ends}
