#include "qp/limit.hpp"

#include <algorithm>
#include <cstring>

#include "qp/roles.hpp"
#include "qp/slow_memory.hpp"

namespace roci::qp {
namespace {

bool loses(const Requester& rq) {
    return rq.window.lost() != 0 || rq.window.repeats() || rq.timeouts_in_a_row != 0 || rq.implied_nak_pending;
}

bool waits_for_memory(const Qp& qp) { return qp.slow != nullptr && qp.slow->payload != nullptr && qp.slow->payload->pending; }

/// Returns what prevents the requester from sending the packet at the cursor. may_start() in requester.cpp has refused this
/// packet.
Limit limit_of_next(const Context& ctx, const Qp& qp, const SendRecord& next) {
    const Requester& rq = qp.requester;
    const uint32_t open = cc::window(rq.congestion, ctx.limits(qp));
    if (rq.window.in_flight() >= open) return open < ctx.limits(qp).max_window ? Limit::congestion : Limit::window;
    const bool reads = rq.queue.reads_outstanding() != 0;
    if (reads && (next.fence || needs_response(next.kind))) return Limit::reads;
    if (next.takes_recv && rq.credit_probe) return Limit::credits;
    return Limit::peer;
}

}  // namespace

Limit limit_of(const Context& ctx, const Qp& qp) {
    const Requester& rq = qp.requester;
    if (qp.state != State::rts && qp.state != State::sqd) return Limit::state;
    if (qp.spec.sq.depth == 0) return Limit::program;
    if (rq.deadlines.pending(Deadline::rnr)) return Limit::credits;
    if (loses(rq)) return Limit::loss;
    if (waits_for_memory(qp)) return Limit::memory;
    if (cc::not_before(rq.congestion) > ctx.now) return Limit::congestion;
    if (has_requests(ctx, qp) && ctx.requesters.parked(qp)) return Limit::rate;
    if (has_requests(ctx, qp)) return ctx.outbox[qp.spec.port].waiting() != 0 ? Limit::port : Limit::lcore;
    if (rq.queue.current() != nullptr) return limit_of_next(ctx, qp, *rq.queue.current());
    return rq.queue.empty() ? Limit::program : Limit::peer;
}

Habits habits_of(const Qp& qp) {
    constexpr uint32_t kLong = 512, kLine = 64;
    struct Head {
        abi::SendWqe wqe;
        abi::Sge sge;
    };
    Habits h;
    const rings::SqView& sq = qp.spec.sq;
    if (sq.depth == 0) return h;
    const uint32_t end = qp.requester.queue.fetched();
    h.looked = uint8_t(std::min({end, sq.depth, Habits::kMost}));
    for (uint32_t back = 1; back <= h.looked; ++back) {
        Head head;
        std::memcpy(&head, sq.slot(end - back), sizeof head);
        const abi::SendWqe& w = head.wqe;
        h.signaled += qp.spec.sq_sig_all || (w.send_flags & abi::kSendSignaled) != 0;
        const bool in_memory = (w.send_flags & abi::kSendInline) == 0 && w.num_sge != 0;
        h.unaligned += in_memory && head.sge.length >= kLong && head.sge.addr % kLine != 0;
    }
    return h;
}

}  // namespace roci::qp
