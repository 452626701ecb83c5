// Checks the invariants of a QP between the rounds of its engine. The simulator calls these functions after each round.
#include "qp/reorder.hpp"
#include "qp/reorder_pool.hpp"
#include "qp/slow_memory.hpp"
#include "qp/state.hpp"

namespace roci::qp {
namespace {

/// Checks that the jobs are in the order of their last PSNs. A replayed part of a READ therefore precedes the remaining
/// responses of that READ.
const char* check_jobs(const Qp& qp) {
    const Responder& rs = qp.responder;
    if (rs.jobs.count > rs.jobs.size) return "more READs are being answered than there is room for";
    for (uint32_t i = 1; i < rs.jobs.count; ++i)
        if (end_psn(qp, rs.jobs.at(i)).distance_from(end_psn(qp, rs.jobs.at(i - 1))) <= 0)
            return "READs are not answered in PSN order";
    return nullptr;
}

const char* check_deadlines(const Qp& qp) {
    const Deadlines& d = qp.requester.deadlines;
    if (d.earliest() != kNever && (!qp.timer.armed() || qp.timer.deadline > d.earliest())) return "the timer misses a deadline";
    const bool must_time =
        qp.requester.window.awaits_answer() && qp.requester.ack_timeout != kNever && !unacknowledged(qp.spec.type);
    if (must_time && !d.pending(Deadline::ack) && !d.pending(Deadline::rnr)) return "an answer is awaited without a timeout";
    return nullptr;
}

const char* check_backlog(const Backlog& b, bool kept, bool open) {
    if ((b.places != nullptr) != (b.count != 0)) return "places for kept frames without frames, or the other way round";
    if (kept != (b.count != 0 || open)) return "the QP does not know whether it keeps frames";
    if (b.count == 0) return nullptr;
    const uint32_t span = psn_span(b.first, b.end);
    if (span == 0 || span < b.count) return "more frames are kept than PSNs";
    return psn_span(b.base, b.end) < span ? "a frame is kept before the missing one" : nullptr;
}

const char* check_reorder(const Qp& qp) {
    if (qp.reorder == nullptr) return qp.keeps_requests || qp.keeps_responses ? "frames are kept nowhere" : nullptr;
    const Reorder& r = *qp.reorder;
    if ((qp.keeps_requests || qp.keeps_responses) && !r.timer.armed()) return "kept frames without a time limit";
    const ReceiveSequence& s = qp.responder.sequence;
    if (qp.keeps_requests && !s.refused() && r.requests.base != s.expected()) return "kept requests wait for another PSN";
    if (const char* wrong = check_backlog(r.requests, qp.keeps_requests, false)) return wrong;
    return check_backlog(r.responses, qp.keeps_responses, r.has_ack);
}

const char* check_waiting(bool waits, const Qp& qp, const SlowQueue SlowState::*queue) {
    if (!waits)
        return qp.slow != nullptr && (qp.slow->*queue).now != nullptr ? "a packet waits, but not those behind it" : nullptr;
    const bool for_something = qp.slow != nullptr && (qp.slow->closing || (qp.slow->*queue).now != nullptr);
    return for_something ? nullptr : "packets wait for nothing";
}

}  // namespace

const char* check(const Qp& qp) {
    const Requester& rq = qp.requester;
    if (const char* wrong = rq.window.check()) return wrong;
    if (const char* wrong = qp.responder.sequence.check()) return wrong;
    if (const char* wrong = check_jobs(qp)) return wrong;
    if (const char* wrong = check_reorder(qp)) return wrong;
    if (const char* wrong = check_waiting(qp.waits_requests, qp, &SlowState::requests)) return wrong;
    if (const char* wrong = check_waiting(qp.waits_responses, qp, &SlowState::responses)) return wrong;
    if (qp.state != State::rts && qp.state != State::sqd) return nullptr;
    if (const char* wrong = rq.queue.check(rq.window)) return wrong;
    if (const char* wrong = qp.read_cuts.check(rq.window.acked(), rq.window.highest_sent())) return wrong;
    return check_deadlines(qp);
}

const char* check_kept(const Context& ctx, const Qp& qp) {
    constexpr Nanos kTimers = 10'000'000;  // more than the longest Patience::wait() plus the granularity of the timer
    if (ctx.reorder != nullptr && ctx.reorder->keepers != 0 && ctx.reorder->in_use() == 0)
        return "too many QPs count as keeping requests";
    if (qp.reorder == nullptr) return nullptr;
    if (qp.keeps_requests && ctx.reorder->keepers == 0) return "a QP that keeps requests does not count";
    const auto wrong = [&](const Backlog& b, bool keeps, bool waits) -> const char* {
        if (b.count > ctx.reorder->most_per_qp()) return "a QP keeps more frames than its share of the pool";
        const bool stalled = keeps && !waits && ctx.now - b.opened > kStalled + kTimers;
        return stalled ? "the kept frames of a stalled QP are not freed" : nullptr;
    };
    const Reorder& r = *qp.reorder;
    if (const char* of_requests = wrong(r.requests, qp.keeps_requests, qp.waits_requests)) return of_requests;
    return wrong(r.responses, qp.keeps_responses, qp.waits_responses);
}

}  // namespace roci::qp
