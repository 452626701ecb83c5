// Timers and going back: the local ACK timeout, the wait after an RNR NAK, and the go-back-N roll-back (IBA 9.9.2).
#include "qp/roles.hpp"

namespace roci::qp {

void roll_back(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    for (uint32_t i = rq.tail; i != rq.fetched; ++i) {
        SendRecord& r = record(qp, i);
        if (!r.outstanding) continue;
        r.outstanding = false;
        --rq.reads_outstanding;
    }
    rq.cursor = rq.tail;
    rq.cursor_packet = rq.tail == rq.fetched ? 0 : psn_span(record(qp, rq.tail).first_psn, rq.una);
    rq.next = rq.una;
    rq.credit_probe = false;
    rq.blocked = false;
    activate(ctx, qp);
}

void restart_ack_timer(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    const bool waiting = rq.una != rq.next;
    rq.ack_deadline = waiting && qp.ack_timeout != kNever ? ctx.now + qp.ack_timeout : kNever;
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
    if (rq.rnr_deadline <= ctx.now) {
        rq.rnr_deadline = kNever;
        activate(ctx, qp);
    }
    if (rq.ack_deadline <= ctx.now) {
        rq.ack_deadline = kNever;
        if (rq.una != rq.next) {
            ++qp.counters.timeouts;
            rq.implied_nak_pending = false;
            if (take_retry(ctx, qp, rq.retries_left, abi::WcStatus::retry_exc_err)) roll_back(ctx, qp);
        }
    }
    update_timer(ctx, qp);
}

}  // namespace roci::qp
