"""Tests of `roci top`: as text, as JSON, in a terminal, and run by another user."""
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import termios
import time

import exam
from lab import REPO, ROCI, Failure

NOBODY = 65534
SORTS = ('rate', 'messages', 'retransmissions', 'rtt', 'window', 'limit')


def missing():
    return exam.missing()


def no_terminal():
    if shutil.which('tmux') is None:
        return 'no tmux (./dev setup)'
    linked = subprocess.run(['ldd', ROCI], capture_output=True, text=True, check=False).stdout
    return missing() or (None if 'libncurses' in linked else 'this roci was built without ncurses (libncurses-dev: ./dev setup)')


def shows_a_flow(rocid):
    """The text must contain the rates of engines, devices and QPs, and the limit of a flow. It must fit into 100
    columns."""
    with exam.set_up(rocid, 'bulk') as (a, b):
        text = exam.top(rocid)
        row = re.search(rf'(?m)^{a} +(\w+) \d+% +[\d.]+[MG] ', text)
        if not row or not re.search(rf'(?m)^{b} ', text):
            raise Failure(f'no flow of QP {a} to QP {b}:\n{text}')
        if f'limit "{row[1]}" (' not in text:
            raise Failure(f'no words for the limit "{row[1]}":\n{text}')
        if not re.search(r'(?m)^0 +\d+% +\d+% +\d+% +[\d.]+[kM]? +[\d.]+[kM]? +[\d.]+[kM]? +[\d.]+[kM]? +2$', text):
            raise Failure(f'no engine with frames, messages and cycles per message:\n{text}')
        if wide := [line for line in text.splitlines() if len(line) > 100]:
            raise Failure(f'wider than 100 columns: {wide}')
        for sort in SORTS:
            if f'sorted by {sort}' not in exam.top(rocid, '--interval', '0.1', '--sort', sort):
                raise Failure(f'--sort {sort} is not told')


def fits_forty_columns(rocid):
    with exam.set_up(rocid, 'bulk') as (a, _):
        text = exam.top(rocid, '--interval', '0.2', '--width', '40')
        if wide := [line for line in text.splitlines() if len(line) > 40]:
            raise Failure(f'wider than 40 columns: {wide}')
        if 'left out, 40 columns are too few' not in text or not re.search(rf'(?m)^{a} +\w+ ', text):
            raise Failure(f'no QP with its limit, or no word on columns that are left out:\n{text}')


def in_a_narrow_terminal(*command):
    """Returns what a command prints on a terminal that has 40 columns."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 40, 0, 0))
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as program:
            os.close(theirs)
            text = b''
            with contextlib.suppress(OSError):  # EIO: the program has closed the terminal
                while data := os.read(ours, 65536):
                    text += data
        return text.decode().replace('\r', '')
    finally:
        os.close(ours)


def status_fits_forty_columns(rocid):
    with exam.set_up(rocid, 'idle_program') as (a, _):
        for filters, wanted in (([], rf'(?m)\b{a}\b'), (['--qp', str(a)], r'(?m)^  program +python3')):
            text = in_a_narrow_terminal(str(ROCI), 'status', '--socket', rocid.socket, *filters)
            if wide := [line for line in text.splitlines() if len(line) > 40]:
                raise Failure(f'roci status {filters} is wider than 40 columns: {wide}')
            if not re.search(wanted, text):
                raise Failure(f'roci status {filters} has no /{wanted}/:\n{text}')


def recorded_as_it_is(rocid):
    """docs/see.md must contain the same headings as the screen."""
    with exam.set_up(rocid, 'bulk'):
        text = exam.top(rocid, '--interval', '0.2')
    page = [line.split() for line in (REPO / 'docs/see.md').read_text(encoding='utf-8').splitlines()]
    headings = [line for line in text.splitlines() if re.match('(engine|device|QP) +[a-z]', line)]
    if len(headings) != 3 or (stale := [line for line in headings if line.split() not in page]):
        raise Failure(f'the recording in docs/see.md is stale (tests/conformance/record.py top --write): {stale if len(headings) == 3 else text}')


def as_json(rocid):
    with exam.set_up(rocid, 'bulk') as (a, _):
        model = json.loads(exam.top(rocid, '--json'))
        flow = next(q for q in model['qps'] if q['qpn'] == int(a))
        if flow['tx_bits_per_second'] <= 0 or flow['limit_share'] <= 0 or flow['window'] != 256 or not flow['peer']:
            raise Failure(f'{flow}')
        engine = model['engines'][0]
        if engine['cycles_per_message'] <= 0 or not 0 < engine['busy'] <= 1:
            raise Failure(f'{engine}')
        if model['devices'][0]['tx_bits_per_second'] <= 0:
            raise Failure(f'{model["devices"]}')


def of_others_nothing(rocid):
    if os.geteuid() != 0:
        return  # only root can become another user
    os.chmod(rocid.socket, 0o666)
    os.chmod(os.path.dirname(rocid.socket), 0o755)
    with exam.set_up(rocid, 'idle_program') as qps:
        done = subprocess.run([ROCI, 'top', '--once', '--json', '--interval', '0.1', '--socket', rocid.socket], capture_output=True, text=True, user=NOBODY,
                              cwd='/', timeout=30, check=False)
        if done.returncode != 0 or json.loads(done.stdout)['qps'] or not json.loads(done.stdout)['engines']:
            raise Failure(f'user {NOBODY} sees QPs {qps} of another user, or no engines: {done.stdout}{done.stderr}')


def needs_a_terminal(rocid):
    done = subprocess.run([ROCI, 'top', '--socket', rocid.socket], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False)
    if done.returncode != 1 or '--once' not in done.stderr:
        raise Failure(f'without a terminal: {done.returncode}, {done.stderr}')


class Terminal:
    """A terminal of tmux in which one program runs. Each terminal has a separate tmux server."""

    def __init__(self, command, columns, lines):
        self.folder = tempfile.TemporaryDirectory(prefix='roci-tmux-')
        self.socket = f'{self.folder.name}/tmux'
        self.status = f'{self.folder.name}/status'
        words = ' '.join(str(c) for c in command)
        self.tmux('new-session', '-d', '-x', str(columns), '-y', str(lines), f'{words}; echo $? > {self.status}.new; mv {self.status}.new {self.status}')

    def tmux(self, *words, check=True):
        done = subprocess.run(['tmux', '-f', '/dev/null', '-S', self.socket, *words], capture_output=True, text=True, timeout=30, check=False)
        if check and done.returncode != 0:
            raise Failure(f'tmux {words[0]}: {done.stderr}')
        return done.stdout

    def screen(self):
        return self.tmux('capture-pane', '-p', check=False)

    def wait_for(self, wanted, limit=30):
        """Waits until the content of the screen matches a pattern. Returns this content."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            screen = self.screen()
            if re.search(wanted, screen, re.M):
                return screen
            time.sleep(0.05)
        raise Failure(f'the screen does not show /{wanted}/:\n{screen}')

    def resize(self, columns, lines):
        self.tmux('resize-window', '-x', str(columns), '-y', str(lines))

    def type(self, keys):
        self.tmux('send-keys', keys)

    def exit_code(self, limit=30):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if os.path.exists(self.status):
                with open(self.status, encoding='utf-8') as text:
                    return int(text.read())
            time.sleep(0.05)
        raise Failure(f'it does not end:\n{self.screen()}')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux('kill-server', check=False)
        self.folder.cleanup()


def in_a_terminal(rocid):
    """The key `s` must change the order. A new window size must change the columns. The key `q` must end the
    program."""
    with exam.set_up(rocid, 'bulk') as (a, _), Terminal([ROCI, 'top', '--interval', '0.2', '--socket', rocid.socket], 100, 40) as terminal:
        screen = terminal.wait_for(rf'^{a} +\w+ \d+%')
        if 'sorted by rate' not in screen or 'q quit' not in screen:
            raise Failure(f'no head or foot:\n{screen}')
        terminal.type('s')
        terminal.wait_for('sorted by messages')
        terminal.resize(40, 50)
        screen = terminal.wait_for('left out, 40')
        terminal.resize(120, 30)
        terminal.wait_for(r'^QP .* program')
        terminal.type('q')
        if (code := terminal.exit_code()) != 0:
            raise Failure(f'q: exit code {code}')


CASES = {
    'roci top --once shows a flow and its limit': shows_a_flow,
    'roci top fits 40 columns': fits_forty_columns,
    'roci status fits 40 columns': status_fits_forty_columns,
    'roci top --json': as_json,
    'roci top looks as docs/see.md shows it': recorded_as_it_is,
    'roci top shows nothing of other users': of_others_nothing,
    'roci top needs a terminal, --once does not': needs_a_terminal,
}
IN_TERMINAL = {'roci top in a terminal': in_a_terminal}
