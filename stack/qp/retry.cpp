// Timers and going back: the local ACK timeout, the wait after an RNR NAK, the go-back-N roll-back (IBA 9.9.2), and how much is
// sent into a network that loses.
#include <algorithm>

#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

/// The timeout T that was asked for is the shortest: a requester may wait up to 4 T (IBA 9.9.2.1.1). One after the other without
/// any answer is a peer with more to do than it has time for; asking it at the same pace again would use the retries up.
constexpr uint8_t kMostTimeoutDoublings = 2;

Nanos patience(const Qp& qp) { return qp.ack_timeout << qp.requester.timeouts_in_a_row; }

}  // namespace

void widen_window(const Context& ctx, Qp& qp, uint32_t acknowledged) {
    Requester& rq = qp.requester;
    if (rq.window < ctx.max_inflight) rq.window = uint16_t(std::min(rq.window + acknowledged, ctx.max_inflight));
}

void to_oldest(Requester& rq) {
    rq.cursor = rq.tail;
    rq.current = rq.oldest;
    rq.cursor_packet = rq.oldest == nullptr ? 0 : psn_span(rq.oldest->first_psn, rq.una);
}

void roll_back(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    for (SendRecord* r = rq.oldest; r != nullptr; r = r->next) {
        if (!r->outstanding) continue;
        r->outstanding = false;
        --rq.reads_outstanding;
    }
    to_oldest(rq);
    rq.next = rq.una;
    rq.credit_probe = false;
    rq.blocked = false;
    activate_requester(ctx, qp);
}

void restart_ack_timer(Context& ctx, Qp& qp) {
    ROCI_STAGE(timers);
    Requester& rq = qp.requester;
    const bool waiting = rq.una != rq.next;
    rq.ack_deadline = waiting && qp.ack_timeout != kNever ? ctx.now + patience(qp) : kNever;
    update_timer(ctx, qp);
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
    if (qp.state == State::err) return activate(ctx, qp);  // receives posted while it went there
    if (qp.reorder != nullptr) look_at_kept(ctx, qp);
    if (rq.rnr_deadline <= ctx.now) {
        rq.rnr_deadline = kNever;
        activate_requester(ctx, qp);
    }
    if (rq.ack_deadline <= ctx.now) {
        rq.ack_deadline = kNever;
        if (rq.una != rq.next) {
            ++qp.counters.timeouts;
            if (rq.timeouts_in_a_row < kMostTimeoutDoublings) ++rq.timeouts_in_a_row;
            rq.window = kWindowAfterSilence;
            rq.implied_nak_pending = false;
            if (take_retry(ctx, qp, rq.retries_left, abi::WcStatus::retry_exc_err)) roll_back(ctx, qp);
        }
    }
    update_timer(ctx, qp);
}

}  // namespace roci::qp
