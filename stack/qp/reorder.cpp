// The reorder buffer. If requests are missing, a sequence NAK reports only the first gap (IBA 9.7.4.1.2), and loss reports
// report all gaps (loss_reports.cpp). Missing responses are requested again (missing.cpp). When the first gap is closed, all
// packets up to the next gap are executed.
#include "qp/reorder.hpp"

#include <algorithm>

#include "qp/roles.hpp"

namespace roci::qp {
namespace {

KeptFrame*& place(const Context& ctx, const Backlog& b, Psn psn) { return b.places[psn.value() & (ctx.reorder->window() - 1)]; }

/// Removes the frame with this PSN from the backlog and returns the frame. The backlog must contain the frame.
KeptFrame* take_out(const Context& ctx, Backlog& b, Psn psn) {
    KeptFrame* k = std::exchange(place(ctx, b, psn), nullptr);
    --b.count;
    if (psn != b.first || b.count == 0) return k;
    while (place(ctx, b, b.first) == nullptr) ++b.first;
    return k;
}

/// Prefetches the next two kept frames: the payload of the first, and the packet of the second. Their bytes may have left the
/// cache since they arrived.
void prefetch_next(const Context& ctx, const Backlog& b) {
    if (b.count == 0) return;
    const uint8_t* payload = place(ctx, b, b.first)->packet.payload;
    for (uint32_t line = 0; line < 4; ++line) __builtin_prefetch(payload + 64 * line);
    const auto* then = reinterpret_cast<const std::byte*>(place(ctx, b, b.first + 1));
    if (then == nullptr) return;
    for (uint32_t line = 0; line < 3; ++line) __builtin_prefetch(then + 64 * line);
}

void release_places(Context& ctx, Backlog& b) {
    if (b.places != nullptr) ctx.reorder->give_back(std::exchange(b.places, nullptr));
}

/// Frees all kept frames. If the peer still runs, the peer sends the packets again.
void drop_backlog(Context& ctx, Backlog& b) {
    ctx.reorder->count(&ReorderCounters::freed, b.count);
    ReturnedFrames returned(*ctx.reorder);
    while (b.count != 0) returned.add(take_out(ctx, b, b.first));
    release_places(ctx, b);
    b.asked = false;
}

void drop_responses(Context& ctx, Qp& qp) {
    drop_backlog(ctx, qp.reorder->responses);
    qp.reorder->has_ack = qp.keeps_responses = false;
    forget_missing(qp);
}

void set_keeps_requests(Context& ctx, Qp& qp, bool keeps) {
    ctx.reorder->keepers += uint32_t(keeps) - uint32_t(qp.keeps_requests);
    qp.keeps_requests = keeps;
}

void drop_requests(Context& ctx, Qp& qp) {
    drop_backlog(ctx, qp.reorder->requests);
    set_keeps_requests(ctx, qp, false);
    qp.reorder->reports.due = qp.reorder->reports.waits = false;
    qp.reorder->reports.frontier = qp.reorder->requests.base;
}

/// Sets `base` to `to` and frees the kept frames before `to`. Such frames exist, for example, if a READ request uses PSNs at
/// which frames are kept.
void advance(Context& ctx, Backlog& b, Psn to) {
    const uint32_t steps = psn_span(b.base, to);
    b.base = to;
    const auto passed = [&] { return b.count != 0 && psn_span(b.first, to) != 0 && psn_span(b.first, to) <= steps; };
    if (!passed()) return;
    ReturnedFrames returned(*ctx.reorder);
    while (passed()) {
        returned.add(take_out(ctx, b, b.first));
        ctx.reorder->count(&ReorderCounters::freed);
    }
}

/// Starts the time limit for the gap at `base`. Called when a gap is detected, or when the preceding gap is closed.
void open_gap(Context& ctx, Backlog& b) {
    b.asked = false;
    b.opened = ctx.now;
}

/// Returns false if the ICRC of a kept frame is wrong, and counts the frame. Checks the ICRC only once.
bool intact(Context& ctx, const Qp& qp, KeptFrame& k) {
    if (!k.packet.unchecked) return true;
    k.packet.unchecked = false;
    if (wire::icrc_right(k.packet)) return true;
    ctx.reorder->count(&ReorderCounters::bad_icrc);
    bump(ctx.device(qp).rx_errors);
    bump(ctx.device(qp).icrc_errors);
    return false;
}

/// Keeps the packet if possible. Returns true if this packet or an intact copy of it is kept.
bool keep(Context& ctx, const Qp& qp, Backlog& b, const wire::Packet& p) {
    ReorderPool& pool = *ctx.reorder;
    if (psn_span(b.base, p.psn) >= pool.window()) {
        pool.count(&ReorderCounters::beyond);
        return false;
    }
    if (b.places == nullptr && (b.places = pool.take_places()) == nullptr) return false;
    KeptFrame*& here = place(ctx, b, p.psn);
    if (here != nullptr && intact(ctx, qp, *here)) {
        pool.count(&ReorderCounters::duplicates);
        return true;
    }
    if (here != nullptr) ReturnedFrames(pool).add(take_out(ctx, b, p.psn));  // the first copy is damaged
    KeptFrame* k = pool.keep(p, b.count, ctx.arrival);
    if (k == nullptr) {
        if (b.count == 0) release_places(ctx, b);
        return false;
    }
    here = k;
    if (b.count == 0) {
        b.first = p.psn;
        b.end = p.psn + 1;
    } else {
        if (psn_span(b.base, p.psn) < psn_span(b.base, b.first)) b.first = p.psn;
        if (psn_span(b.base, p.psn) >= psn_span(b.base, b.end)) b.end = p.psn + 1;
    }
    ++b.count;
    return true;
}

Nanos due(const Backlog& b, bool open) {
    if (!open) return kNever;
    return b.asked ? b.opened + kStalled : b.opened + b.patience.wait();
}

Nanos responses_due(const Reorder& r, bool open) {
    if (!open) return kNever;
    return r.missing.waits ? r.missing.since + r.responses.patience.wait() : r.responses.opened + kStalled;
}

/// Arms the timer for the earliest deadline. If the deadline moves to a later time, the timer is not changed, as in
/// update_timer().
void arm(Context& ctx, Qp& qp) {
    Reorder& r = *qp.reorder;
    const bool reports = qp.keeps_requests && r.reports.wanted && r.reports.waits;
    const Nanos report = reports ? r.reports.since + r.requests.patience.wait() : kNever;
    const Nanos next = std::min({due(r.requests, qp.keeps_requests), responses_due(r, qp.keeps_responses), report});
    if (next == kNever || (r.timer.armed() && r.timer.deadline <= next)) return;
    ctx.wheel.arm(r.timer, next);
}

/// Called when the first gap was closed. If the missing packet had been reported, or its request repeated once, records how
/// late the packet was. Does nothing for packets before Backlog::again.
void closed(Context& ctx, Backlog& b) {
    if (b.asked && b.base.distance_from(b.again) >= 0) b.patience.arrived(b.base, b.count, ctx.now - b.opened);
}

// ---- requests -------------------------------------------------------------------------------------------------------

bool not_ready(const ReceiveSequence& s) { return s.missing() && aeth_kind(s.nak_syndrome()) == AethKind::rnr_nak; }

/// Returns true if all kept requests are invalid after the executed request, because the QP will enter ERR or because the
/// requester will send all later packets again.
bool refused(const ReceiveSequence& s) { return s.refused() || not_ready(s); }

/// Schedules a sequence NAK for the gap if one of the limits of Patience is exceeded. Arms the timer.
void judge_requests(Context& ctx, Qp& qp) {
    Backlog& b = qp.reorder->requests;
    if (!qp.waits_requests && !b.asked && b.patience.exhausted(b.count, ctx.now - b.opened)) {
        b.asked = true;
        nak_gap(ctx, qp);
    }
    arm(ctx, qp);
}

// ---- responses ------------------------------------------------------------------------------------------------------

/// Returns the first unacknowledged PSN that only a READ or atomic response can acknowledge, or highest_sent() if there is none.
Psn awaited_response(const Requester& rq) {
    const SendRecord* r = rq.queue.oldest();
    while (r != nullptr && !needs_response(r->kind)) r = r->next;
    if (r == nullptr) return rq.window.highest_sent();
    return r->first_psn.distance_from(rq.window.acked()) > 0 ? r->first_psn : rq.window.acked();
}

uint32_t overtakers(const Reorder& r) { return r.responses.count + uint32_t(r.has_ack); }

void judge_responses(Context& ctx, Qp& qp) {
    Backlog& b = qp.reorder->responses;
    const bool lost = !qp.waits_responses && look_for_missing(ctx, qp);
    b.asked = qp.reorder->missing.frontier.distance_from(qp.requester.window.acked()) > 0;
    if (lost) implied_nak(ctx, qp);
    if (qp.reorder != nullptr) arm(ctx, qp);
}

/// Executes the next kept response, ACK or NAK if it is in order. Returns false if none was executed.
bool execute_next_response(Context& ctx, Qp& qp, ReturnedFrames& returned) {
    const Requester& rq = qp.requester;
    Reorder& r = *qp.reorder;
    advance(ctx, r.responses, rq.window.acked());
    const uint32_t free = psn_span(rq.window.acked(), awaited_response(rq));  // PSNs that can be acknowledged without a response
    if (r.responses.count != 0 && psn_span(rq.window.acked(), r.responses.first) <= free) {
        KeptFrame* k = take_out(ctx, r.responses, r.responses.first);
        prefetch_next(ctx, r.responses);
        execute_response(ctx, qp, k->packet);
        ctx.reorder->count(&ReorderCounters::delivered);
        returned.add(k);
        return true;
    }
    // A NAK acknowledges only the PSNs before its own.
    const uint32_t own = aeth_kind(r.ack.syndrome) == AethKind::ack ? 1 : 0;
    if (!r.has_ack || (r.ack.psn + own).distance_from(rq.window.acked()) > int32_t(free)) return false;
    r.has_ack = false;
    if (r.ack.psn.distance_from(rq.window.acked()) < 0) return false;
    const wire::Packet ack = r.ack;
    execute_response(ctx, qp, ack, true);
    return true;
}

}  // namespace

Reorder* reorder_of(Context& ctx, Qp& qp) {
    if (qp.reorder == nullptr && ctx.reorder != nullptr) qp.reorder = ctx.reorder->make(&qp);
    return qp.reorder;
}

bool keep_request(Context& ctx, Qp& qp, const wire::Packet& p) {
    const ReceiveSequence& rs = qp.responder.sequence;
    // After an RNR NAK the requester starts again from the PSN of the NAK (IBA 9.7.5.2.8), so all later packets are repeated.
    if (not_ready(rs) || reorder_of(ctx, qp) == nullptr) return false;
    Backlog& b = qp.reorder->requests;
    if (!qp.keeps_requests) {
        b.base = b.again = rs.expected();
        open_gap(ctx, b);
        b.asked = rs.missing();
        begin_reports(qp);
    }
    if (!keep(ctx, qp, b, p)) {
        if (qp.keeps_requests && b.count == 0) drop_requests(ctx, qp);
        b.asked = true;
        return false;
    }
    set_keeps_requests(ctx, qp, true);
    look_for_news(ctx, qp, p.psn);
    judge_requests(ctx, qp);
    return true;
}

void hand_over_requests(Context& ctx, Qp& qp) {
    const ReceiveSequence& rs = qp.responder.sequence;
    if (rs.expected() == qp.reorder->requests.base && !refused(rs)) return;
    const Psn was = qp.reorder->requests.base;
    // Loss reports have reported the gaps before the frontier, so these gaps count as reported.
    qp.reorder->requests.asked |= qp.reorder->reports.frontier.distance_from(was) > 0;
    closed(ctx, qp.reorder->requests);
    ReturnedFrames returned(*ctx.reorder);
    while (qp.reorder != nullptr) {
        Backlog& b = qp.reorder->requests;
        advance(ctx, b, rs.expected());
        if (refused(rs)) return drop_requests(ctx, qp);
        if (b.count == 0 || b.first != rs.expected()) break;
        KeptFrame* k = take_out(ctx, b, b.first);
        prefetch_next(ctx, b);
        if (intact(ctx, qp, *k)) {
            execute_request(ctx, qp, k->packet);
            ctx.reorder->count(&ReorderCounters::delivered);
        }
        returned.add(k);
        if (qp.waits_requests) break;
    }
    if (qp.reorder == nullptr) return;
    Backlog& b = qp.reorder->requests;
    if (b.count == 0) return drop_requests(ctx, qp);
    open_gap(ctx, b);
    look_for_news(ctx, qp, was);
    judge_requests(ctx, qp);
}

bool keep_response(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (reorder_of(ctx, qp) == nullptr) return false;
    Reorder& r = *qp.reorder;
    Backlog& b = r.responses;
    if (!qp.keeps_responses) {
        b.base = b.again = qp.requester.window.acked();
        open_gap(ctx, b);
        forget_missing(qp);
    }
    if (p.info->has(wire::kAck)) {
        if (!r.has_ack || p.psn.distance_from(r.ack.psn) >= 0) r.ack = p;
        r.has_ack = true;
    } else if (!keep(ctx, qp, b, p) && !qp.keeps_responses) {
        b.asked = true;
        return false;
    }
    qp.keeps_responses = true;
    const bool lost = learn_missing(ctx, qp, p.psn);
    b.asked = r.missing.frontier.distance_from(qp.requester.window.acked()) > 0;
    arm(ctx, qp);
    return !lost;
}

void hand_over_responses(Context& ctx, Qp& qp) {
    if (qp.requester.window.acked() == qp.reorder->responses.base) return;
    closed(ctx, qp.reorder->responses);
    ReturnedFrames returned(*ctx.reorder);
    while (qp.reorder != nullptr && !qp.waits_responses && execute_next_response(ctx, qp, returned)) {
    }
    if (qp.reorder == nullptr) return;
    if (overtakers(*qp.reorder) == 0) return drop_responses(ctx, qp);
    if (qp.reorder->responses.count == 0) release_places(ctx, qp.reorder->responses);
    open_gap(ctx, qp.reorder->responses);
    judge_responses(ctx, qp);
}

void forget_nak(Context& ctx, Qp& qp) {
    Reorder& r = *qp.reorder;
    if (!r.has_ack || aeth_kind(r.ack.syndrome) == AethKind::ack) return;
    r.has_ack = false;
    if (r.responses.count == 0) drop_responses(ctx, qp);
}

void note_repeated(Context& ctx, Backlog& b, Psn psn) {
    if (b.patience.repeated(psn)) ctx.reorder->count(&ReorderCounters::late);
}

void look_at_kept(Context& ctx, Qp& qp) {
    // A packet that waits for slow memory (mem/slow_memory.hpp) is not missing, so the time limits start again.
    if (qp.waits_requests) qp.reorder->requests.opened = qp.reorder->reports.since = ctx.now;
    if (qp.waits_responses) qp.reorder->responses.opened = qp.reorder->missing.since = ctx.now;
    const auto stalled = [&](const Backlog& b) { return ctx.now - b.opened >= kStalled; };
    const bool given_up = qp.reorder->requests.asked && stalled(qp.reorder->requests);
    if (qp.keeps_requests && !given_up) look_for_news(ctx, qp, qp.reorder->requests.end);
    if (qp.keeps_requests) given_up ? drop_requests(ctx, qp) : judge_requests(ctx, qp);
    if (qp.keeps_responses) stalled(qp.reorder->responses) ? drop_responses(ctx, qp) : judge_responses(ctx, qp);
    if (qp.reorder != nullptr) arm(ctx, qp);
}

uint32_t kept_frames(const Qp& qp) {
    return qp.reorder != nullptr ? qp.reorder->requests.count + qp.reorder->responses.count : 0;
}

void forget_kept(Context& ctx, Qp& qp) {
    if (qp.reorder == nullptr) return;
    drop_requests(ctx, qp);
    drop_responses(ctx, qp);
    ctx.wheel.cancel(qp.reorder->timer);
    ctx.reorder->give_back(std::exchange(qp.reorder, nullptr));
}

}  // namespace roci::qp
