"""Tests of `roci plot`: the numbers of a page agree with rocid's counters; queue pairs that end or belong to another
user; error messages about bad input; the page in a browser."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

import lab
import pairs
import pcap
import single
import stat_cases
from lab import REPO, ROCI, Failure, Program, Rocid, free_port

EXCERPT = REPO / 'tests/data/rxe-excerpt.pcap'
FAILED, NOT_ROCE, REFUSED = 1, 2, 3
RING = 32768  # number of frames of 128 bytes that can wait for the reader of a capture (TapRing::slots)
BROWSERS = ('chromium', 'chromium-browser', 'google-chrome')
FLAGS = ('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync', '--hide-scrollbars', '--window-size=1180,1500')


def roci_plot(*arguments, code=0, **how):
    done = subprocess.run([ROCI, 'plot', *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL, **how)
    if done.returncode != code:
        raise Failure(f'roci plot {arguments} returned {done.returncode}, {code} wanted: {done.stdout}{done.stderr}')
    return done.stdout + done.stderr


def need(text, words, what):
    if words not in text:
        raise Failure(f'{what}: {words!r} wanted:\n{text[-2000:]}')


def dropped_by(rocid, device):
    """Returns the number of a device's frames that fault injection dropped."""
    return sum(port['fault']['dropped'] for port in rocid.status()['host']['ports'] if port['device'] == device)


def lossy_run(folder):
    """Captures WRITEs of roci1 while 1 % of all frames are lost. Returns (capture, counters of roci1, number of lost
    frames from roci1)."""
    with Rocid(args=['--set', 'fault.seed=7', '--set', 'fault.drop=0.01']) as rocid:
        file = str(pathlib.Path(folder) / 'lossy.pcapng')
        gids = {device: lab.gid_indexes(rocid, device) for device in single.DEVICES}
        capture = pcap.roci_pcap(rocid, '-i', 'roci1', '-s', '128', '-w', file)
        pcap.wait_capturing(capture)
        pairs.run_pair(rocid, pairs.Pair('ib_write_bw', '-n 500 -s 16384 -t 4 -Q 1 --cq-mod=1'), gids, quick=False)
        captured, missed = pcap.end(capture)
        if not 0 < captured < RING or missed:
            raise Failure(f'{captured} frames captured, {missed} missed; {RING} fit into the ring of the capture, however late its reader comes')
        return file, stat_cases.sample(rocid)['roci1'], dropped_by(rocid, 'roci1')


def busiest(data):
    """Returns the stream that has the most packets. A stream is one direction of a connection."""
    return max((s for c in data['connections'] for s in c['streams']), key=lambda s: s['counts']['packets'])


def agrees_with_counters():
    """Frames of the sender are lost before the capture records them. So each loss is either a gap that a repeated
    packet fills, or a lost repetition."""
    with tempfile.TemporaryDirectory() as folder:
        file, counted, dropped = lossy_run(folder)
        page = pathlib.Path(folder) / 'page.html'
        said = roci_plot(file, '-o', page)
        seen = busiest(json.loads(roci_plot(file, '--json')))['counts']
        text = page.read_text(encoding='utf-8')
    if dropped < 10:
        raise Failure(f'{dropped} frames dropped: the run shows nothing')
    if seen['again'] + dropped != counted['retransmits']:
        raise Failure(f'rocid sent {counted["retransmits"]} packets again and {dropped} of all were dropped, but the page has {seen["again"]} packets twice: {seen}')
    unseen = counted['retransmits'] - seen['resent']  # number of repetitions that were lost, too
    if not dropped - unseen <= seen['lost'] <= counted['retransmits'] or unseen < 0:
        raise Failure(f'{dropped} packets dropped, {counted["retransmits"]} sent again; the page says: {seen}')
    if seen['sequence_naks'] != counted['seq_nak_received']:
        raise Failure(f'{counted["seq_nak_received"]} sequence NAKs received, {seen["sequence_naks"]} on the page')
    if seen['payload'] != 500 * 16384:
        raise Failure(f'{seen["payload"]} bytes of payload arrived, {500 * 16384} wanted')
    words = f'{seen["lost"]} packets were lost; {seen["resent"]} sent again'
    need(said, words, 'roci plot prints')
    need(text, words, 'the page says')


class Traffic:
    """Two connected queue pairs with traffic."""

    def __init__(self, rocid, gids):
        port = free_port()
        pair = pairs.Pair('ib_write_bw', '-D 60')
        self.sides = [Program(rocid, pair.command(0, port, gids, quick=False))]
        self.sides[0].wait_listening(port)
        self.sides.append(Program(rocid, pair.command(1, port, gids, quick=False)))
        self.rocid = rocid

    def __enter__(self):
        return pcap.wait_connected(self.rocid)['qpn']

    def __exit__(self, *_):
        self.end()

    def end(self):
        for side in self.sides:
            side.kill()


def live_page(rocid, gids):
    with tempfile.TemporaryDirectory() as folder, Traffic(rocid, gids) as qpn:
        page = pathlib.Path(folder) / 'live.html'
        said = roci_plot('--socket', rocid.socket, '--qp', qpn, '--seconds', '0.5', '-o', page)
        need(said, f'QP {qpn}', 'roci plot --qp')
        need(page.read_text(encoding='utf-8'), f'QP {qpn}', 'the page')


def ends_while_looked_at(rocid, gids):
    with tempfile.TemporaryDirectory() as folder:
        traffic = Traffic(rocid, gids)
        with traffic as qpn:
            page = pathlib.Path(folder) / 'ended.html'
            looking = subprocess.Popen([ROCI, 'plot', '--socket', rocid.socket, '--qp', str(qpn), '--seconds', '600', '-o', page], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            line = looking.stderr.readline()
            traffic.end()
            said, more = looking.communicate(timeout=60)
        # The queue pair may have ended before the capture recorded its first frame. In this case nothing can be
        # drawn, and the exit code is 4.
        if looking.returncode not in (0, 4):
            raise Failure(f'roci plot of a queue pair that ended returned {looking.returncode}: {line}{said}{more}')
        need(' '.join((said + more).split()), f'Queue pair {qpn} ended after', 'roci plot')


def refused(rocid, gids):
    need(roci_plot('--socket', rocid.socket, '--qp', '16777215', code=REFUSED), 'no queue pair has the number', 'no such queue pair')
    if os.geteuid() != 0:
        return
    os.chmod(rocid.socket, 0o666)
    os.chmod(os.path.dirname(rocid.socket), 0o755)
    with Traffic(rocid, gids) as qpn:
        said = roci_plot('--socket', rocid.socket, '--qp', qpn, '-o', '-', code=REFUSED, user=pcap.NOBODY, cwd='/')
    need(said, 'may capture its own queue pairs only', "somebody else's queue pair")
    if '<html' in said:
        raise Failure("a page of somebody else's queue pair")


def words_for_bad_input():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        whole = EXCERPT.read_bytes()
        (folder / 'cut.pcap').write_bytes(whole[:5000])
        need(roci_plot(folder / 'cut.pcap', '-o', folder / 'cut.html'), 'The capture is cut', 'a cut capture')
        need((folder / 'cut.html').read_text(encoding='utf-8'), 'The capture is cut', 'its page')
        (folder / 'else.pcap').write_bytes(whole[:24] + struct.pack('<IIII', 1, 0, 60, 60) + bytes(60))
        need(roci_plot(folder / 'else.pcap', '-o', folder / 'no.html', code=NOT_ROCE), 'no RoCEv2 packets', 'another protocol')
        need(roci_plot('/etc/passwd', '-o', folder / 'no.html', code=FAILED), 'unknown file format', 'no capture')
        need(roci_plot(folder / 'none', code=FAILED), 'No such file', 'no file')
        need(roci_plot(EXCERPT, '-o', folder / 'a/b.html', code=FAILED), 'cannot write', 'no folder')
        need(roci_plot(EXCERPT, '--flow', '999', '-o', folder / 'no.html', code=FAILED), 'has no connection 999', 'no such connection')
        if (folder / 'no.html').exists():
            raise Failure('a page of nothing')
        said = roci_plot(EXCERPT, '-o', folder / 'a.html', env={**os.environ, 'COLUMNS': '40'})
        text = said[:said.rindex('page: ')]
        if long := [line for line in text.splitlines() if len(line) > 40]:
            raise Failure(f'wider than a terminal of 40 columns: {long[:3]}')
        with open(EXCERPT, 'rb') as piped:
            done = subprocess.run([ROCI, 'plot', '-', '-o', '-'], stdin=piped, capture_output=True, timeout=60, check=False)
        if done.returncode != 0 or not done.stdout.startswith(b'<!doctype html>'):
            raise Failure(f'a capture from a pipe: {done.returncode}, {done.stderr}')


def browser():
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def no_browser():
    return None if browser() else 'no Chromium (apt-get install chromium)'


def browse(url, *what):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([browser(), *FLAGS, f'--user-data-dir={profile}', *what, url], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Failure(f'{browser()} returned {done.returncode}: {done.stderr[-1000:]}')
    return done.stdout


def shown_by(html):
    """Returns the data- attributes of the root element. In them the script of the page reports what it has drawn."""
    root = re.search(r'<html[^>]*>', html)[0].replace('&quot;', '"')
    drawn = re.search(r'data-drawn="(\{[^}]*\})"', root)
    if not drawn:
        raise Failure(f'the page drew nothing: {root}')
    low, high = map(int, re.search(r'data-range="(-?\d+) (-?\d+)"', root).groups())
    return json.loads(drawn[1]), low, high, int(re.search(r'data-rungs="(\d+)"', root)[1])


def png_pixels(data):
    """Returns the colours of an RGB or RGBA image with 8 bits per channel, and the number of pixels of each
    colour."""
    at, packed, width, height, channels = 8, b'', 0, 0, 3
    while at < len(data):
        length, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR':
            width, height, depth, colour = struct.unpack('>IIBB', data[at + 8:at + 18])
            if depth != 8 or colour not in (2, 6):
                raise Failure(f'a PNG of depth {depth}, colour type {colour}')
            channels = 4 if colour == 6 else 3
        if kind == b'IDAT':
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw, stride, before, counts = zlib.decompress(packed), width * channels, bytearray(width * channels), {}
    for y in range(height):
        how, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        unfilter(how, line, before, channels)
        for x in range(0, stride, channels):
            counts[bytes(line[x:x + 3])] = counts.get(bytes(line[x:x + 3]), 0) + 1
        before = line
    return counts


def unfilter(how, line, before, channels):
    for i in range(len(line) if how else 0):
        left = line[i - channels] if i >= channels else 0
        corner = before[i - channels] if i >= channels else 0
        if how == 4:
            guess = left + before[i] - corner
            near = min((abs(guess - left), 0, left), (abs(guess - before[i]), 1, before[i]), (abs(guess - corner), 2, corner))[2]
        else:
            near = {1: left, 2: before[i], 3: (left + before[i]) // 2}[how]
        line[i] = (line[i] + near) & 0xff


# Turns the mouse wheel over the graph, then moves the pointer to a packet. Copies the text of the tooltip into the
# root element.
GESTURES = """<script>
const box = document.querySelector('#charts canvas'), at = box.getBoundingClientRect();
box.dispatchEvent(new WheelEvent('wheel', {deltaY: -300, clientX: at.left + 400, clientY: at.top + 100, bubbles: true, cancelable: true}));
setTimeout(() => {
  for (let y = 30; y < 360 && document.getElementById('tip').hidden; y += 6)
    for (let x = 100; x < 1100 && document.getElementById('tip').hidden; x += 6)
      box.dispatchEvent(new PointerEvent('pointermove', {clientX: at.left + x, clientY: at.top + y, bubbles: true}));
  document.documentElement.dataset.tip = document.getElementById('tip').textContent;
}, 300);
</script>"""
SENT, LOST = bytes.fromhex('2f6db3'), bytes.fromhex('c8252c')


def drawn_by_a_browser():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file, *_ = lossy_run(folder)
        page = folder / 'page.html'
        roci_plot(file, '-o', page)
        stream = busiest(json.loads(roci_plot(file, '--json')))
        lost = sum(flags & 1 for flags in stream['events']['f'])
        url = page.as_uri()
        drawn, low, high, rungs = shown_by(browse(url, '--virtual-time-budget=3000', '--dump-dom'))
        if not drawn.get('sent') or drawn.get('lost') != lost or not rungs:
            raise Failure(f'{lost} lost in the data; drawn: {drawn}, {rungs} rows of the ladder')
        middle = (low + high) // 2
        some, *zoomed, _ = shown_by(browse(f'{url}#from={middle}&to={middle + (high - low) // 100}', '--virtual-time-budget=3000', '--dump-dom'))
        if not 0 < some.get('sent', 0) < drawn['sent'] or zoomed[0] < middle - 1:
            raise Failure(f'zoomed to a hundredth: {some} from {zoomed}; all: {drawn}')
        acted = folder / 'acted.html'
        acted.write_text(page.read_text(encoding='utf-8').replace('</body>', GESTURES + '</body>'), encoding='utf-8')
        html = browse(acted.as_uri(), '--virtual-time-budget=3000', '--dump-dom')
        _, low_after, high_after, _ = shown_by(html)
        if high_after - low_after >= high - low:
            raise Failure(f'the wheel did not zoom: {low_after} to {high_after}')
        if not re.search(r'data-tip="PSN \d+', html):
            raise Failure('no tooltip over a packet')
        picture = folder / 'page.png'
        browse(f'{url}#theme=light', f'--screenshot={picture}')
        pixels = png_pixels(picture.read_bytes())
        if pixels.get(SENT, 0) < 200 or pixels.get(LOST, 0) < 20:
            raise Failure(f'{pixels.get(SENT, 0)} pixels of packets sent, {pixels.get(LOST, 0)} of packets lost in the picture')


CASES = {
    'roci plot --qp: a page of a queue pair at work': live_page,
    'roci plot --qp: a queue pair that ends': ends_while_looked_at,
    "roci plot --qp: somebody else's queue pair": refused,
}
ALONE = {
    'roci plot: losses agree with the counters': agrees_with_counters,
    'roci plot: words for bad input': words_for_bad_input,
}
BROWSED = {'roci plot: the page in a browser': drawn_by_a_browser}
