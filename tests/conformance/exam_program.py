"""Runs one broken or slow set-up of the exam (exam.py). Both ends are in this program, on roci0 and roci1.

    exam_program.py CASE

Prints a line `completion STATUS VENDOR_ERR` per completion for which the case waits, then `QPs A B`, then `ready`. Ends at the end of its
standard input. A case may return a function as a third value. The program then calls this function repeatedly until it ends, to make
traffic. For the completions of stream(), the program prints only those in error.
"""
import mmap
import select
import sys
import tempfile
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
SIZE = 1 << 16
GID_INDEX = 1
MTU = {1024: e.IBV_MTU_1024, 4096: e.IBV_MTU_4096}


class End:
    def __init__(self, device, cqe=64, service=e.IBV_QPT_RC, depth=16):
        self.context = Context(name=device)
        self.gid = self.context.query_gid(1, GID_INDEX)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, cqe)
        self.mr = MR(self.pd, SIZE, ALL)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=service, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))

    def connect(self, peer, *, mtu=4096, gid=None, qpn=None, psn=7, peer_psn=7, retry=1, rnr_retry=1, rnr_timer=1, timeout=16, access=ALL, reads=1,
                dest_reads=1, until=e.IBV_QPS_RTS):
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qp_access_flags = access
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS)
        if until == e.IBV_QPS_INIT:
            return
        attr = QPAttr(qp_state=e.IBV_QPS_RTR, port_num=1)
        attr.path_mtu, attr.dest_qp_num, attr.rq_psn = MTU[mtu], peer.qp.qp_num if qpn is None else qpn, peer_psn
        attr.max_dest_rd_atomic, attr.min_rnr_timer = dest_reads, rnr_timer
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=gid or peer.gid, sgid_index=GID_INDEX), is_global=1, port_num=1)
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN | e.IBV_QP_MAX_DEST_RD_ATOMIC
                       | e.IBV_QP_MIN_RNR_TIMER)
        attr = QPAttr(qp_state=e.IBV_QPS_RTS, port_num=1)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = psn, timeout, retry, rnr_retry, reads
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC)

    def datagrams(self, qkey):
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qkey = qkey
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_QKEY)
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
        attr = QPAttr(qp_state=e.IBV_QPS_RTS)
        attr.sq_psn = 0
        self.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_SQ_PSN)

    def sge(self, length=64, lkey=None, mr=None):
        mr = mr or self.mr
        return SGE(mr.buf, length, mr.lkey if lkey is None else lkey)

    def receive(self, length=SIZE, count=1):
        for i in range(count):
            self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[self.sge(length)]))

    def send(self, sge=None, opcode=e.IBV_WR_SEND, remote=None, rkey=None, compare=None, datagram=None):
        wr = SendWR(opcode=opcode, num_sge=1, sg=[sge or self.sge()], send_flags=e.IBV_SEND_SIGNALED)
        if compare is not None:
            wr.set_wr_atomic(rkey, remote, compare, 1)
        elif remote is not None:
            wr.set_wr_rdma(rkey, remote)
        if datagram is not None:
            wr.set_wr_ud(*datagram)
        self.qp.post_send(wr)

    def complete(self, count=1, limit=20, quiet=False):
        """Waits up to `limit` seconds for `count` completions and prints them. If `quiet` is true, prints only
        completions in error."""
        end = time.monotonic() + limit
        while count and time.monotonic() < end:
            got, completions = self.cq.poll(count)
            for wc in completions[:got]:
                if wc.status != e.IBV_WC_SUCCESS or not quiet:
                    print('completion', wc.status, wc.vendor_err, flush=True)
                count -= 1
        if count:
            print('missing', count, flush=True)


def pair(a_options=None, b_options=None, a_end=None, b_end=None):
    a, b = End('roci0', **(a_end or {})), End('roci1', **(b_end or {}))
    a.connect(b, **(a_options or {}))
    b.connect(a, **(b_options or {}))
    return a, b


def write(a, b, **how):
    a.send(opcode=e.IBV_WR_RDMA_WRITE, remote=how.get('remote', b.mr.buf), rkey=how.get('rkey', b.mr.rkey), sge=how.get('sge'))
    a.complete()
    return a, b


def message(a, b, length=64, receive=None):
    """Executes one SEND from a to b. If `receive` is not None, b first posts a receive of `receive` bytes."""
    if receive is not None:
        b.receive(receive)
    a.send(a.sge(length))
    a.complete()
    return a, b


def datagram(a_qkey=0x11, b_qkey=0x11, length=64, receive=False):
    a, b = End('roci0', service=e.IBV_QPT_UD), End('roci1', service=e.IBV_QPT_UD)
    a.datagrams(a_qkey)
    b.datagrams(b_qkey)
    if receive:
        b.receive()
    a.ah = AH(a.pd, attr=AHAttr(gr=GlobalRoute(dgid=b.gid, sgid_index=GID_INDEX), is_global=1, port_num=1))
    a.send(a.sge(length), datagram=(a.ah, b.qp.qp_num, a_qkey))
    a.complete()
    return a, b


def wrong_rkey():
    return write(*pair(), rkey=0xdead00)


def wrong_pd():
    a, b = pair()
    b.other = PD(b.context)
    b.foreign = MR(b.other, 4096, ALL)
    return write(a, b, rkey=b.foreign.rkey, remote=b.foreign.buf)


def wrong_range():
    a, b = pair()
    return write(a, b, remote=b.mr.buf + SIZE - 8)


def no_remote_write():
    a, b = pair()
    b.closed = MR(b.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    return write(a, b, rkey=b.closed.rkey, remote=b.closed.buf)


def access_flags():
    return write(*pair(b_options={'access': e.IBV_ACCESS_LOCAL_WRITE}))


def no_receive():
    return message(*pair())


def slow_reader():
    a, b = pair(a_options=LONG_WAIT | {'rnr_retry': 7})
    a.send()
    time.sleep(0.2)
    b.receive()
    a.complete()
    return a, b


def receive_too_small():
    return message(*pair(), length=4096, receive=16)


def path_mtu():
    return message(*pair(b_options={'mtu': 1024}), length=4096, receive=SIZE)


def small_mtu():
    return message(*pair({'mtu': 1024}, {'mtu': 1024}), length=4096, receive=SIZE)


def wrong_qpn():
    return message(*pair({'qpn': 0xabcde}))


def wrong_gid():
    a, b = End('roci0'), End('roci1')
    a.connect(b, gid=a.gid)
    b.connect(a)
    return message(a, b)


def wrong_psn():
    return message(*pair({'psn': 5000}), receive=SIZE)


def peer_not_ready():
    return message(*pair(b_options={'until': e.IBV_QPS_INIT}))


def cq_too_small():
    a, b = pair(b_end={'cqe': 1, 'depth': 64})
    b.receive(count=40)
    for _ in range(40):
        a.send()
        a.complete(limit=2)
    return b, a


def wrong_lkey():
    a, b = pair()
    a.send(a.sge(lkey=0xdead00))
    a.complete()
    return a, b


def lkey_of_other_pd():
    a, b = pair()
    a.other = PD(a.context)
    a.foreign = MR(a.other, 4096, ALL)
    a.send(a.sge(mr=a.foreign))
    a.complete()
    return a, b


def misaligned_atomic():
    a, b = pair()
    a.send(a.sge(8), e.IBV_WR_ATOMIC_FETCH_AND_ADD, b.mr.buf + 4, b.mr.rkey, compare=1)
    a.complete()
    return a, b


def wrong_qkey():
    a, b = datagram(b_qkey=0x22, receive=True)
    return b, a


def datagram_without_receive():
    a, b = datagram()
    return b, a


def datagram_too_long():
    return datagram(length=8192)


def deregistered():
    """The peer has deregistered its region before the request is posted."""
    a, b = pair()
    key, address = b.mr.rkey, b.mr.buf
    b.mr.close()
    a.send(opcode=e.IBV_WR_RDMA_WRITE, remote=address, rkey=key)
    a.complete()
    return a, b


def memory_by_address():
    a, b = pair()
    b.file = tempfile.TemporaryFile()
    b.file.truncate(SIZE)
    b.mapping = mmap.mmap(b.file.fileno(), SIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    import ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(b.mapping))
    b.slow = MR(b.pd, 4096, ALL, address=address)
    a.send(opcode=e.IBV_WR_RDMA_WRITE, remote=address, rkey=b.slow.rkey)
    a.complete()
    return b, a


def lossy():
    """The network loses 1 % of the frames (configured in exam.py)."""
    a, b = pair({'retry': 7, 'timeout': 14}, {'retry': 7})
    for _ in range(60):
        a.send(a.sge(SIZE), e.IBV_WR_RDMA_WRITE, b.mr.buf, b.mr.rkey)
        a.complete()
    return a, b


def idle_program():
    return message(*pair(), receive=SIZE)


def not_connected():
    a, b = End('roci0'), End('roci1')
    a.connect(b, until=e.IBV_QPS_INIT)
    return a, b


LONG_WAIT = {'retry': 7, 'timeout': 18}  # a timeout of 1 s


def stream(a, b, length, outstanding):
    """Returns a function. Each call posts WRITEs from a to b until `outstanding` are outstanding, then waits for one completion."""
    under_way = 0

    def go_on():
        nonlocal under_way
        while under_way < outstanding:
            a.send(a.sge(length), e.IBV_WR_RDMA_WRITE, b.mr.buf, b.mr.rkey)
            under_way += 1
        a.complete(quiet=True)
        under_way -= 1
    return go_on


def tiny_window():
    """rocid permits 8 packets in flight, and the network is slow (both configured in exam.py)."""
    a, b = pair(LONG_WAIT, LONG_WAIT)
    return a, b, stream(a, b, SIZE, 15)


def credits():
    """The peer posts only one receive, so all other messages wait."""
    a, b = pair(LONG_WAIT | {'rnr_retry': 7}, {'rnr_timer': 31})
    b.receive()
    for _ in range(8):
        a.send()
    a.complete()
    return a, b


def sleeping_engine():
    a, b = pair()
    next_one = stream(a, b, 64, 1)

    def ping():
        next_one()
        time.sleep(0.02)
    return a, b, ping


def every_request_signalled():
    a, b = pair()
    write_next = stream(a, b, 64, 1)
    for _ in range(1500):
        write_next()
    return a, b


def unaligned_buffers():
    a, b = pair()
    for _ in range(40):
        a.send(SGE(a.mr.buf + 1, 4096, a.mr.lkey), e.IBV_WR_RDMA_WRITE, b.mr.buf, b.mr.rkey)
        a.complete(quiet=True)
    return a, b


def many_qps():
    a, b = pair()
    cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    a.more = [QP(a.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=a.cq, rcq=a.cq, cap=cap)) for _ in range(1100)]
    b.receive()
    a.send()
    a.complete()
    return a, b


def missing_neighbour():
    a, b = End('roci0'), End('roci1')
    try:
        a.connect(b, gid=GID('0000:0000:0000:0000:0000:ffff:0a4d:0063'))
    except PyverbsRDMAError as error:
        print('refused', error)
    return a, b


def retry_limit():
    """The network loses packets (configured in exam.py), and the QP has no retries."""
    a, b = pair({'retry': 0}, {'retry': 0})
    write_next = stream(a, b, SIZE, 1)
    for _ in range(60):
        write_next()
    return a, b


SENDERS = 12


def incast():
    """Many senders send to one device, and the network loses packets (configured in exam.py)."""
    pairs = [pair(LONG_WAIT | {'timeout': 12}, LONG_WAIT) for _ in range(SENDERS)]
    streams = [stream(a, b, SIZE, 8) for a, b in pairs]
    for _ in range(60):
        for write_next in streams:
            write_next()
    a, b = pairs[0]
    b.others = pairs
    return b, a


def bulk():
    """Makes a flow, so that `roci top` shows rates. This case is not part of the exam."""
    a, b = pair(LONG_WAIT, LONG_WAIT)
    return a, b, stream(a, b, SIZE, 8)


def main():
    case = globals()[sys.argv[1]]
    a, b, *go_on = case()
    print('QPs', a.qp.qp_num, b.qp.qp_num)
    print('ready', flush=True)
    while go_on and not select.select([sys.stdin], [], [], 0)[0]:
        go_on[0]()
    sys.stdin.read()


if __name__ == '__main__':
    main()
