"""Clients that send invalid messages, and programs that run without a rocid. rocid must refuse invalid messages, and
other programs must not be affected. Programs without a rocid must print a clear message."""
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import tempfile

from kills import wait_for_totals
from lab import ROCI, Failure, Program, free_port
from pairs import Pair, run_pair

MAGIC = 0x49434F52
REPO = pathlib.Path(__file__).resolve().parents[2]
VERSION = int(re.search(r'kAbiVersion = (\d+)', (REPO / 'verbs_api/abi/version.hpp').read_text()).group(1))
EPROTO = 71
OP_HELLO, OP_LIST_DEVICES, OP_OPEN_DEVICE, OP_LAST = 1, 2, 3, 68


# --- the control socket, byte by byte (verbs_api/abi/control.hpp) ------------------------------------------------------

class Client:
    """A client of the control socket that can send any message."""

    def __init__(self, rocid):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(rocid.socket)
        self.fds = []
        self.wanted_chunk = 0

    def close(self):
        """Ends the session and closes the descriptors that the client has received from rocid."""
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def send(self, op, body=b'', fds=()):
        socket.send_fds(self.socket, [struct.pack('<HHI', op, 0, 7) + body], fds)

    def receive(self):
        """Returns (error, body, reason, fds) of a reply, or None if rocid has closed the connection."""
        packet, fds, _, _ = socket.recv_fds(self.socket, 65536, 32)
        self.fds += fds
        if not packet:
            return None
        error, _cookie, body_length, reason_length, self.wanted_chunk = struct.unpack_from('<iIIIQ', packet)
        return error, packet[24:24 + body_length], packet[24 + body_length:24 + body_length + reason_length].decode(), fds

    def request(self, op, body=b'', fds=()):
        self.send(op, body, fds)
        return self.receive()

    def hello(self, version=VERSION):
        return self.request(OP_HELLO, struct.pack('<II64s', MAGIC, version, b'conformance'))


def wrong_abi_version(rocid, _gids):
    client = Client(rocid)
    error, body, reason, _ = client.hello(version=999)
    client.close()
    low, high = struct.unpack_from('<II', body) if len(body) >= 8 else (None, None)
    if error != EPROTO or low is None:
        raise Failure(f'error {error}, body of {len(body)} bytes: EPROTO and the range of versions wanted')
    if '999' not in reason or str(high) not in reason:
        raise Failure(f'the reason must name the version asked for and those spoken, not: {reason!r}')


def must_be_refused(rocid, what, send):
    client = Client(rocid)
    send(client)
    try:
        reply = client.receive()
    except (ConnectionResetError, BrokenPipeError):
        reply = None
    finally:
        client.close()
    if reply is not None and reply[0] == 0:
        raise Failure(f'{what} was accepted')
    if reply is not None and not reply[2]:
        raise Failure(f'{what} was refused without a reason')


def malformed_messages(rocid, _gids):
    hello = struct.pack('<II64s', MAGIC, VERSION, b'x')
    cases = {
        'an operation before hello': lambda c: c.send(OP_LIST_DEVICES),
        'a hello with the wrong magic': lambda c: c.send(OP_HELLO, struct.pack('<II64s', 1, VERSION, b'')),
        'a hello cut short': lambda c: c.send(OP_HELLO, b'ROCI'),
        'a packet shorter than its header': lambda c: c.socket.send(b'abc'),
        'an unknown operation': lambda c: (c.send(OP_HELLO, hello), c.receive(), c.send(4242)),
        'a device that does not exist': lambda c: (c.send(OP_HELLO, hello), c.receive(), c.send(OP_OPEN_DEVICE, struct.pack('<II', 9999, 0))),
        'an object without a device': lambda c: (c.send(OP_HELLO, hello), c.receive(), c.send(7)),
    }
    for what, send in cases.items():
        must_be_refused(rocid, what, send)
    rocid.check_alive()


def send_noise(client, rng):
    """Sends up to 100 random operations with random bodies. Stops if rocid closes the connection."""
    for _ in range(100):
        body = rng.randbytes(rng.choice((0, 4, 8, 16, 24, 40, 100, 400))) if rng.random() < 0.5 else small_numbers(rng)
        try:
            if client.request(rng.randrange(OP_LIST_DEVICES, OP_LAST + 2), body) is None:
                return
        except (ConnectionResetError, BrokenPipeError):
            return


def random_messages(rocid, gids, seed=1):
    """Sessions with an open device send random messages on the control socket. During this time a server of
    ibv_rc_pingpong must keep running. Afterwards two programs must be able to exchange messages."""
    rng, port = random.Random(seed), free_port()
    neighbour = Program(rocid, Pair('ibv_rc_pingpong', '-n 1000000').command(0, port, gids, False))
    try:
        neighbour.wait_listening(port)
        before = rocid.totals()
        for _ in range(20):
            client = Client(rocid)
            client.hello()
            client.request(OP_OPEN_DEVICE, struct.pack('<II', rng.randrange(2), 0))
            send_noise(client, rng)
            client.close()
        rocid.check_alive()
        if neighbour.process.poll() is not None:
            raise Failure(f'a neighbour ended:\n{neighbour.output()}')
        wait_for_totals(rocid, before)
    finally:
        neighbour.kill()
    run_pair(rocid, Pair('ibv_rc_pingpong', '-c'), gids, quick=False)


def small_numbers(rng):
    """Returns a body of 32 integers. Most of them are small, so they pass rocid's first checks more often than random
    bytes."""
    return struct.pack('<32I', *(rng.choice((0, 1, 2, 3, 4, 8, 64, 0xFFFFFFFF, rng.randrange(1 << 12))) for _ in range(32)))


# --- no rocid ---------------------------------------------------------------------------------------------------------

def no_rocid(_rocid, _gids):
    for command in (['status'], ['run', '--', 'true']):
        done = subprocess.run([ROCI, command[0], '--socket', '/nonexistent/rocid.sock', *command[1:]], capture_output=True, text=True, timeout=20, check=False)
        if done.returncode == 0 or 'rocid --loopback' not in done.stderr:
            raise Failure(f'roci {command[0]} without a rocid: exit {done.returncode}, "{done.stderr.strip()}": it must say how to start one')
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([ROCI, 'status', '--single'], capture_output=True, text=True, timeout=20, check=False,
                              env={k: v for k, v in os.environ.items() if k != 'ROCI_SOCKET'} | {'XDG_RUNTIME_DIR': folder})
    first = done.stderr.split('\n')[0]
    if done.returncode == 0 or f'{folder}/rocinante/single.sock' not in first:
        raise Failure(f'roci status --single without a rocid: exit {done.returncode}, first line "{first}": it must name the socket')


def verbs_without_rocid(_rocid, _gids):
    """ibv_devinfo with our library but without a rocid must report that there are no devices. It must not crash."""
    folder = pathlib.Path(ROCI).parents[2] / 'verbs_api/libibverbs'
    done = subprocess.run(['ibv_devinfo'], capture_output=True, text=True, timeout=20, check=False,
                          env={**os.environ, 'LD_LIBRARY_PATH': str(folder), 'ROCI_SOCKET': '/nonexistent/rocid.sock'})
    if 'No IB devices found' not in done.stdout + done.stderr or done.returncode < 0:
        raise Failure(f'exit {done.returncode}: {done.stdout}{done.stderr}')


CASES = {
    'a client of another ABI version is told which versions': wrong_abi_version,
    'malformed control messages are refused with a reason': malformed_messages,
    'noise on the control socket hurts nobody else': random_messages,
    'no rocid: roci says what to do': no_rocid,
    'no rocid: programs find no devices': verbs_without_rocid,
}
