// Posting of work requests: the hot path. A post writes its WQEs, publishes once, and rings the doorbell if the QP was idle.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "wqe_writer.hpp"

namespace roci::client {
namespace {

/// The fields and the payload that a send opcode uses. An opcode with value 0 cannot be posted by ibv_post_send(). FLUSH has the
/// value 0, because struct ibv_send_wr has no fields for it.
enum Carries : uint8_t {
    kKnown = 1 << 0,
    kRemote = 1 << 1,  ///< uses wr.rdma
    kAtomic = 1 << 2,  ///< uses wr.atomic
    kImmOrInv = 1 << 3,
    kBind = 1 << 4,
    kOut = 1 << 5,    ///< sends the bytes of the SGEs, which may be inline
    kIn = 1 << 6,     ///< receives bytes into the SGEs
    kValue = 1 << 7,  ///< sends 8 bytes that the WQE carries
};
constexpr auto kOpcodes = [] {
    std::array<uint8_t, 32> t{};
    t[IBV_WR_RDMA_WRITE] = kKnown | kRemote | kOut;
    t[IBV_WR_RDMA_WRITE_WITH_IMM] = kKnown | kRemote | kImmOrInv | kOut;
    t[IBV_WR_SEND] = kKnown | kOut;
    t[IBV_WR_SEND_WITH_IMM] = kKnown | kImmOrInv | kOut;
    t[IBV_WR_RDMA_READ] = kKnown | kRemote | kIn;
    t[IBV_WR_ATOMIC_CMP_AND_SWP] = kKnown | kAtomic | kIn;
    t[IBV_WR_ATOMIC_FETCH_AND_ADD] = kKnown | kAtomic | kIn;
    t[IBV_WR_LOCAL_INV] = kKnown | kImmOrInv;
    t[IBV_WR_BIND_MW] = kKnown | kBind;
    t[IBV_WR_SEND_WITH_INV] = kKnown | kImmOrInv | kOut;
    t[IBV_WR_ATOMIC_WRITE] = kKnown | kRemote | kValue;
    return t;
}();

constexpr uint32_t bit(int opcode) { return 1u << opcode; }
constexpr uint32_t kDatagram = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr uint32_t kUnreliable = kDatagram | bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM) |
                                 bit(IBV_WR_SEND_WITH_INV) | bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
constexpr uint32_t kReliable = kUnreliable | bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                               bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_ATOMIC_WRITE) | bit(kWrFlush);

/// Fills in the remote address and the other fields that the opcode uses.
void fill_address(const Qp& qp, const ibv_send_wr& wr, uint8_t carries, abi::SendWqe* w) {
    if ((carries & kImmOrInv) != 0) w->imm_or_inv = wr.imm_data;
    if (qp.qp.qp_base.qp_type == IBV_QPT_XRC_SEND) set_xrc_srqn(w, wr.qp_type.xrc.remote_srqn);
    if ((carries & kRemote) != 0) {
        w->remote_addr = wr.wr.rdma.remote_addr;
        w->rkey = wr.wr.rdma.rkey;
    } else if ((carries & kAtomic) != 0) {
        w->remote_addr = wr.wr.atomic.remote_addr;
        w->rkey = wr.wr.atomic.rkey;
        w->compare_add = wr.wr.atomic.compare_add;
        w->swap = wr.wr.atomic.swap;
    } else if ((carries & kBind) != 0) {
        fill_bind(w, next_key(*Mw::from(wr.bind_mw.mw), wr.bind_mw.rkey), wr.bind_mw.bind_info);
    }
}

int fill_datagram(const ibv_send_wr& wr, abi::SendWqe* w) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    w->ud.ah = wr.wr.ud.ah->handle;
    w->ud.remote_qpn = wr.wr.ud.remote_qpn;
    w->remote_qkey = wr.wr.ud.remote_qkey;
    return 0;
}

int fill_inline(const Qp& qp, const ibv_send_wr& wr, abi::SendWqe* w) {
    uint32_t used = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
        const ibv_sge& s = wr.sg_list[i];
        if (!append_inline(qp, w, used, reinterpret_cast<const void*>(uintptr_t(s.addr)), s.length)) return EINVAL;
    }
    finish_inline(w, used);
    return 0;
}

/// Copies the 8 bytes of an atomic write into the WQE.
int fill_value(const ibv_send_wr& wr, abi::SendWqe* w) {
    if (wr.num_sge != 1 || wr.sg_list[0].length != sizeof(uint64_t)) return EINVAL;
    std::memcpy(&w->compare_add, reinterpret_cast<const void*>(uintptr_t(wr.sg_list[0].addr)), sizeof w->compare_add);
    return 0;
}

int fill_payload(const Qp& qp, const ibv_send_wr& wr, uint8_t carries, abi::SendWqe* w) {
    static_assert(sizeof(ibv_sge) == sizeof(abi::Sge) && offsetof(ibv_sge, lkey) == offsetof(abi::Sge, lkey));
    if ((carries & kValue) != 0) return fill_value(wr, w);
    if ((carries & (kIn | kOut)) == 0) return 0;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) return (carries & kOut) != 0 ? fill_inline(qp, wr, w) : EINVAL;
    w->num_sge = uint8_t(wr.num_sge);
    if (wr.num_sge != 0) std::memcpy(abi::sges(w), wr.sg_list, size_t(wr.num_sge) * sizeof(abi::Sge));
    return 0;
}

int write_send(Qp& qp, const ibv_send_wr& wr) {
    uint32_t opcode;
    std::memcpy(&opcode, &wr.opcode, sizeof opcode);  // the program's value may be outside the enum
    if (opcode >= kOpcodes.size() || (qp.send_opcodes & bit(int(opcode))) == 0) return EINVAL;
    const uint8_t carries = kOpcodes[opcode];
    if (carries == 0 || wr.num_sge < 0 || uint32_t(wr.num_sge) > qp.cap.max_send_sge) return EINVAL;
    if (send_queue_full(qp)) return ENOMEM;
    if ((carries & kBind) != 0 && !can_bind(qp, wr.bind_mw.mw)) return EINVAL;
    abi::SendWqe* w = begin_wqe(qp, wr.wr_id, opcode, wr.send_flags);
    fill_address(qp, wr, carries, w);
    if (qp.qp.qp_base.qp_type == IBV_QPT_UD) {
        if (const int err = fill_datagram(wr, w); err != 0) return err;
    } else if (only_datagrams(wr.send_flags)) {
        return EINVAL;
    }
    return fill_payload(qp, wr, carries, w);
}

int write_receive(abi::RqProducer& rq, uint32_t limit, uint32_t max_sge, const ibv_recv_wr& wr) {
    if (wr.num_sge < 0 || uint32_t(wr.num_sge) > max_sge) return EINVAL;
    if (rq.head - std::atomic_ref(rq.tail).load(std::memory_order_acquire) >= limit) return ENOMEM;
    abi::RecvWqe* w = rq.slot(rq.head);
    *w = {wr.wr_id, uint32_t(wr.num_sge), 0};
    if (wr.num_sge != 0) std::memcpy(abi::sges(w), wr.sg_list, size_t(wr.num_sge) * sizeof(abi::Sge));
    return 0;
}

/// Writes and publishes the requests of a list, up to the first request that cannot be posted. If there is such a request, sets
/// *bad to this request and returns an errno. Otherwise returns 0. Sets `bell` to true if the QP is in error and a request was
/// published. The caller must then ring the doorbell, so that rocid flushes the requests.
int post_receives(abi::RqProducer& rq, uint32_t limit, uint32_t max_sge, ibv_recv_wr* wr, ibv_recv_wr** bad, bool& bell) {
    const uint32_t first = rq.head;
    int err = 0;
    for (; wr != nullptr; wr = wr->next) {
        err = write_receive(rq, limit, max_sge, *wr);
        if (err != 0) break;
        ++rq.head;
    }
    bell = rq.head != first && rq.publish();
    if (err != 0) *bad = wr;
    return err;
}

void wake(int fd) {
    if (fd < 0) return;
    const int saved = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof one);  // EAGAIN: a wake-up is pending
    errno = saved;
}

void ring_bell(const Qp& qp) {
    if (abi::ring_doorbell(qp.bell, qp.slot)) wake(*qp.wake_fd);
}

}  // namespace

uint32_t sendable_opcodes(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_XRC_SEND:
            return kReliable;
        case IBV_QPT_UC:
            return kUnreliable;
        case IBV_QPT_UD:
            return kDatagram;
        case IBV_QPT_RAW_PACKET:
            return bit(IBV_WR_SEND);
        default:
            return 0;
    }
}

bool takes_sends(ibv_qp_state state) { return state >= IBV_QPS_RTS && state <= IBV_QPS_ERR; }

int refusal(const ibv_context* context, int otherwise) {
    return Context::from(const_cast<ibv_context*>(context))->flushes.load(std::memory_order_relaxed) ? EIO : otherwise;
}

void ring(Qp& qp) {
    if (qp.sq.publish()) ring_bell(qp);
}

int post_send(ibv_qp* p, ibv_send_wr* wr, ibv_send_wr** bad) {
    Qp& qp = *Qp::from(p);
    std::lock_guard guard(qp.sq_lock);
    int err = takes_sends(p->state) ? 0 : refusal(p->context, EINVAL);
    const uint32_t first = qp.sq.head;
    while (err == 0 && wr != nullptr) {
        err = write_send(qp, *wr);
        if (err != 0) break;
        ++qp.sq.head;
        if (wr->opcode == IBV_WR_BIND_MW) wr->bind_mw.mw->rkey = next_key(*Mw::from(wr->bind_mw.mw), wr->bind_mw.rkey);
        wr = wr->next;
    }
    if (qp.sq.head != first) ring(qp);
    if (err == 0) return 0;
    *bad = wr;
    return refuse(err);
}

int post_recv(ibv_qp* p, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Qp& qp = *Qp::from(p);
    std::lock_guard guard(qp.rq_lock);
    // Receives may not be posted in Reset (IBA 10.8.3). A QP that has an SRQ, or that only sends, has no receive queue.
    if (p->state == IBV_QPS_RESET || p->state == IBV_QPS_UNKNOWN || qp.rq.shared == nullptr) {
        *bad = wr;
        return refuse(refusal(p->context, EINVAL));
    }
    bool bell = false;
    const int err = post_receives(qp.rq, qp.recv_limit, qp.cap.max_recv_sge, wr, bad, bell);
    if (bell && qp.bell.page != nullptr) ring_bell(qp);
    return err == 0 ? 0 : refuse(err);
}

int post_srq_recv(ibv_srq* p, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Srq& srq = *Srq::from(p);
    std::lock_guard guard(srq.lock);
    bool bell = false;  // stays false, because rocid sets RqShared::ring only in the receive queue of a QP
    const int err = post_receives(srq.rq, srq.limit, srq.max_sge, wr, bad, bell);
    if (err == 0) return 0;
    return refuse(err == ENOMEM ? refusal(p->context, err) : err);
}

}  // namespace roci::client
