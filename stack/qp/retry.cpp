// The timers of a QP and go-back-N. This file handles the local ACK timeout (IBA 9.9.2), calls the functions for the other
// deadlines of a QP, and goes back to the oldest unacknowledged packet.
#include <algorithm>

#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

/// The timeout T of the program is a minimum; a requester may wait up to 4 T (IBA 9.9.2.1.1). Consecutive timeouts may mean
/// that the peer is overloaded. Therefore each of the first two timeouts doubles the next timeout, so that the retries are not
/// exhausted too soon.
constexpr uint8_t kMostTimeoutDoublings = 2;

/// The timer fires up to one tick late, and the packet is sent in the round after that. So the limit of 4 T is reduced by two
/// ticks.
Nanos patience(const Qp& qp) {
    const Nanos t = qp.requester.ack_timeout;
    return std::min(t << qp.requester.timeouts_in_a_row, 4 * t - 2 * TimerWheel::kTick);
}

/// Called when the local ACK timeout has expired.
void on_silence(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    count(ctx, qp, &EventCounters::timeouts);
    if (rq.timeouts_in_a_row < kMostTimeoutDoublings) ++rq.timeouts_in_a_row;
    cc::on_timeout(rq.congestion, qp.adaptation, ctx.limits(qp), ctx.now);
    rq.implied_nak_pending = false;
    note(ctx, qp, Happening::timeout, rq.window.acked(), rq.retries_left);
    if (take_retry(ctx, qp, rq.retries_left, abi::WcStatus::retry_exc_err)) roll_back(ctx, qp);
}

}  // namespace

void roll_back(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    if (qp.reorder != nullptr) {
        forget_nak(ctx, qp);
        missing_go_back(ctx, qp);
        forget_report(qp);
    }
    qp.repair_time.record_repeated(rq.window.acked(), rq.window.highest_sent());
    rq.window.go_back();
    rq.round_trip.abort();
    qp.send_times.clear();
    rq.repair.cause = Repair::Cause::none;
    rq.queue.forget_requests();
    rq.queue.rewind(rq.window.acked());
    rq.credit_probe = false;
    rq.blocked = false;
    activate_requester(ctx, qp);
}

void extend_ack_timer(Context& ctx, Qp& qp) {
    ROCI_STAGE(timers);
    Requester& rq = qp.requester;
    const bool waiting = rq.window.awaits_answer() && rq.ack_timeout != kNever;
    rq.deadlines.set(Deadline::ack, waiting ? ctx.now + patience(qp) : kNever);
    update_timer(ctx, qp);
}

void restart_ack_timer(Context& ctx, Qp& qp) {
    arm_probe(ctx, qp);
    extend_ack_timer(ctx, qp);
}

bool take_retry(Context& ctx, Qp& qp, uint8_t& left, abi::WcStatus status) {
    if (left == 0) {
        fail_send(ctx, qp, status);
        return false;
    }
    --left;
    return true;
}

void on_timer(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    if (qp.state == State::err) return activate(ctx, qp);  // flushes receives that were posted during the transition to ERR
    if (qp.reorder != nullptr) look_at_kept(ctx, qp);
    if (rq.deadlines.expire(Deadline::rnr, ctx.now)) activate_requester(ctx, qp);
    if (rq.deadlines.expire(Deadline::pacing, ctx.now)) activate(ctx, qp);
    // A response that waits for slow memory (mem/slow_memory.hpp) has arrived, so the peer is not silent and nothing is lost.
    const bool answered = qp.waits_responses;
    if (rq.deadlines.expire(Deadline::probe, ctx.now)) answered ? arm_probe(ctx, qp) : probe(ctx, qp);
    if (rq.deadlines.expire(Deadline::ack, ctx.now) && rq.window.awaits_answer())
        answered ? extend_ack_timer(ctx, qp) : on_silence(ctx, qp);
    update_timer(ctx, qp);
}

}  // namespace roci::qp
