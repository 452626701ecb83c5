// The behaviour of an open device after rocid has ended, for example by kill -9. Outstanding requests complete with
// IBV_WC_WR_FLUSH_ERR, and posts fail with EIO. Empty polls, calls that wait for events, and queries detect the end of rocid.
// There is no additional thread.
#include <poll.h>
#include <time.h>

#include <mutex>

#include "context.hpp"

namespace roci::client {
namespace {

/// The shortest interval between two checks of the connection, in nanoseconds.
constexpr uint64_t kLookEvery = 4'000'000;

uint64_t coarse_now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

bool hung_up(int fd) {
    pollfd p{.fd = fd, .events = POLLRDHUP, .revents = 0};
    return poll(&p, 1, 0) == 1;
}

/// Returns a CQE for a flushed request. Sets the fields that are valid in a failed completion (ibv_poll_cq(3)), and the opcode.
abi::Cqe flushed_entry(uint64_t wr_id, uint32_t qpn, abi::CqeQueue queue) {
    abi::Cqe e{};
    e.wr_id = wr_id;
    e.qpn = qpn;
    e.queue = queue;
    e.status = abi::WcStatus::wr_flush_err;
    e.opcode = queue == abi::kCqeSend ? abi::WcOpcode::send : abi::WcOpcode::recv;
    return e;
}

uint32_t load(const uint32_t& index) { return std::atomic_ref(const_cast<uint32_t&>(index)).load(std::memory_order_acquire); }

bool flush_receive(abi::RqProducer& rq, uint32_t qpn, abi::CqeQueue queue, abi::Cqe& out) {
    const uint32_t tail = load(rq.tail);
    if (rq.shared == nullptr || tail == rq.head) return false;
    out = flushed_entry(rq.slot(tail)->wr_id, qpn, queue);
    rq.free_recv();
    return true;
}

/// Sets `out` to a CQE for the QP's next outstanding request in this CQ and frees the slot of the request. Returns false if the
/// QP has no such request. If the QP uses an SRQ, the receives of the SRQ also belong to the QP.
bool flush_qp(Cq& cq, Qp& qp, abi::Cqe& out) {
    const ibv_qp& p = *qp.base();
    if (const uint32_t tail = load(qp.sq.tail); p.send_cq == cq.base() && tail != qp.sq.published) {
        out = flushed_entry(qp.sq.slot(tail)->wr_id, p.qp_num, abi::kCqeSend);
        qp.sq.free_send(tail);
        return true;
    }
    if (p.recv_cq != cq.base()) return false;
    if (p.srq != nullptr) return flush_receive(Srq::from(p.srq)->rq, p.qp_num, abi::kCqeSrq, out);
    return flush_receive(qp.rq, p.qp_num, abi::kCqeRecv, out);
}

/// Makes all further posts fail, so that the number of outstanding requests does not grow.
void stop_posting(Context& c) {
    c.qp_events.any([](Qp& qp) {
        const std::lock_guard sends(qp.sq_lock), receives(qp.rq_lock);
        qp.base()->state = IBV_QPS_UNKNOWN;
        return false;
    });
    c.srq_events.any([](Srq& srq) {
        const std::lock_guard guard(srq.lock);
        srq.limit = 0;
        return false;
    });
}

}  // namespace

void rocid_ended(Context& c) {
    if (c.inherited || c.flushes.load(std::memory_order_relaxed)) return;
    c.link.lost("it has ended");
    stop_posting(c);
    c.flushes.store(true, std::memory_order_release);
}

void look_after_rocid(Context& c) {
    const uint64_t now = coarse_now();
    if (now - c.looked_at.load(std::memory_order_relaxed) < kLookEvery) return;
    c.looked_at.store(now, std::memory_order_relaxed);
    if (c.inherited || c.flushes.load(std::memory_order_relaxed)) return;
    if (c.link.gone() || hung_up(c.link.fd())) rocid_ended(c);
}

bool rocid_serves(Context& c) {
    if (c.link.gone()) return false;
    if (!c.page.rocid_runs()) {
        c.link.lost("it has ended");
        return false;
    }
    look_after_rocid(c);
    return !c.link.gone();
}

bool take_flushed(Cq& cq, Context& c, abi::Cqe& out) {
    if (cq.flushed) return false;
    const bool found = c.qp_events.any([&](Qp& qp) { return flush_qp(cq, qp, out); }) ||
                       c.srq_events.any([&](Srq& srq) { return srq.cq == &cq && flush_receive(srq.rq, 0, abi::kCqeSrq, out); });
    cq.flushed = !found;
    return found;
}

}  // namespace roci::client
