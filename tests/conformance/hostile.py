"""A client writes random data into the memory that it shares with rocid. rocid and other clients must not be
affected."""
import errno
import mmap
import os
import random
import struct
import time

from badinput import OP_LAST, OP_OPEN_DEVICE, Client
from kills import wait_for_totals
from lab import Failure
from pairs import Pair, run_pair

OP_ALLOC_PD, OP_CREATE_CQ, OP_CREATE_QP, OP_MODIFY_QP, OP_ADD_CHUNK = 7, 16, 24, 25, OP_LAST
NO_HANDLE = 0xFFFFFFFF
QPS = 8
SESSIONS = 10
PATIENCE = 30
SECONDS = 0.3  # minimum duration of the random writes per session, in seconds

# Values of enum ibv_qp_attr_mask and states.
STATE, ACCESS, PKEY, PORT, AV, MTU = 1, 8, 16, 32, 128, 256
TIMEOUT, RETRY, RNR, RQ_PSN, RD, MIN_RNR, SQ_PSN, DEST_RD, DEST_QP = 512, 1024, 2048, 4096, 8192, 32768, 65536, 131072, 1 << 20
INIT, RTR, RTS = 1, 2, 3
WAY_UP = [(INIT, STATE | ACCESS | PKEY | PORT), (RTR, STATE | AV | MTU | DEST_QP | RQ_PSN | DEST_RD | MIN_RNR),
          (RTS, STATE | TIMEOUT | RETRY | RNR | SQ_PSN | RD)]


def qp_attr(state, dest_qpn, gid):
    """Returns an abi::QpAttr that contains all attributes of all transitions."""
    path = gid + struct.pack('<I8BH6x', 0, 1, 64, 0, 0, 1, 1, 0, 0, 0)
    numbers = struct.pack('<9I24x', state, 0, 3, 0, 0, 0, 0, dest_qpn, 7)
    return numbers + path + bytes(36) + struct.pack('<2H12BI', 0, 0, 0, 0, 1, 1, 12, 1, 4, 7, 7, 0, 0, 0, 0)


class Scribbler(Client):
    """A session with queue pairs, each of which is connected to itself. The session maps all memory that it shares
    with rocid."""

    def __init__(self, rocid, seed):
        super().__init__(rocid)
        self.rng, self.maps = random.Random(seed), []
        self.must('hello', self.hello())
        _, fds = self.must('open_device', self.request(OP_OPEN_DEVICE, struct.pack('<II', 0, 0)))
        self.keep_maps(fds)
        self.wakes = fds[3:]
        pd = struct.unpack_from('<I', self.must('alloc_pd', self.request(OP_ALLOC_PD))[0])[0]
        body, fds = self.must('create_cq', self.request_queue(OP_CREATE_CQ, struct.pack('<4I', 64, NO_HANDLE, 0, 0)))
        self.keep_maps(fds)
        cq = struct.unpack_from('<I', body)[0]
        for _ in range(QPS):
            self.make_qp(pd, cq)

    def request_queue(self, op, body):
        """Sends a request that needs memory for queues. If rocid requests a chunk of memory, adds the chunk and
        repeats the request."""
        reply = self.request(op, body)
        while reply[0] == errno.ENOMEM and self.wanted_chunk:
            chunk, length = os.memfd_create('queues', os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC), self.wanted_chunk
            self.fds.append(chunk)
            os.posix_fallocate(chunk, 0, length)
            self.maps.append(mmap.mmap(chunk, length))
            self.must('add_chunk', self.request(OP_ADD_CHUNK, struct.pack('<Q', length), [chunk]))
            reply = self.request(op, body)
        return reply

    @staticmethod
    def must(what, reply):
        if reply is None or reply[0] != 0:
            raise Failure(f'{what} of an honest client was refused: {reply and reply[2]}')
        return reply[1], reply[3]

    def keep_maps(self, fds):
        """Maps those of the descriptors that can be mapped writable, such as doorbells. Pipes and eventfds cannot be
        mapped."""
        for fd in fds:
            try:
                self.maps.append(mmap.mmap(fd, os.fstat(fd).st_size))
            except (OSError, ValueError):
                pass

    def close(self):
        for shared in self.maps:
            shared.close()
        super().close()

    def make_qp(self, pd, cq):
        create = struct.pack('<8I6I', pd, 2, cq, cq, NO_HANDLE, NO_HANDLE, 1, 0, 64, 64, 4, 4, 64, 0)
        body, fds = self.must('create_qp', self.request_queue(OP_CREATE_QP, create))
        self.keep_maps(fds)
        handle, _, qpn = struct.unpack_from('<3I', body)
        gid = bytes(10) + b'\xff\xff' + bytes((10, 77, 0, 1))
        for state, mask in WAY_UP:
            self.must(f'modify_qp to {state}', self.request(OP_MODIFY_QP, struct.pack('<2I', handle, mask) + qp_attr(state, qpn, gid)))

    def scribble(self):
        """Writes random data over indices, WQEs, CQEs, arm words and doorbell bits. Some of the data are small
        numbers, which pass more checks. Some are bytes that mark a send WQE as posted (abi::phase_of)."""
        for shared in self.maps:
            for _ in range(64):
                words = self.rng.randrange(1, 32)
                noise = self.rng.choice((self.rng.randbytes(8 * words), struct.pack('<Q', self.rng.randrange(64)) * words,
                                         bytes([self.rng.randrange(1, 3)]) * (8 * words)))
                at = self.rng.randrange(0, max(1, min(len(shared), 1 << 20) - len(noise)), 8)
                shared[at:at + len(noise)] = noise
        for fd in self.wakes:
            try:
                os.write(fd, struct.pack('<Q', 1))
            except OSError:
                pass


def states_of_qps(rocid, client):
    """Returns the states of the client's QPs in rocid. The session of the client is the one that has QPS queue
    pairs."""
    sessions = [s for s in rocid.status()['sessions'] if len(s['qps']) == QPS]
    return [qp['state'] for s in sessions for qp in s['qps']] if client.maps else []


def scribbling_client(rocid, gids, seed=1):
    before = rocid.totals()
    for number in range(SESSIONS):
        client = Scribbler(rocid, seed + number)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            client.scribble()
        while 'ERR' not in states_of_qps(rocid, client) and time.monotonic() < end + PATIENCE:
            client.scribble()  # on a busy machine, many writes may be necessary until one hits words that rocid reads
        if 'ERR' not in states_of_qps(rocid, client):
            raise Failure(f'no QP went into error (seed {seed + number}): was anything scribbled on?')
        rocid.check_alive()
        if number == 0:
            run_pair(rocid, Pair('ibv_rc_pingpong', '-c -n 500'), gids, quick=False)  # the hostile session still exists
        client.close()
    wait_for_totals(rocid, before)
    run_pair(rocid, Pair('ibv_rc_pingpong', '-c -n 500'), gids, quick=False)


CASES = {'a client that scribbles over its rings hurts nobody else': scribbling_client}
