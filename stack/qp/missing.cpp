// Determines which responses are to be requested again. All holes (ranges of missing PSNs) that count as lost are requested
// within one round trip, up to Asked::kMost requests. A hole is requested a second time only if a packet shows that the answer
// is lost (asked.hpp), or if the peer is silent.
#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

/// Returns one past the newest PSN that the peer is known to have answered. The peer answers in order (IBA 9.7.5.1.2), so all
/// earlier PSNs have been answered too.
Psn answered_end(const Qp& qp) {
    const Reorder& r = *qp.reorder;
    Psn end = r.responses.count != 0 ? r.responses.end : qp.requester.window.acked();
    if (!r.has_ack) return end;
    const Psn by_ack = aeth_kind(r.ack.syndrome) == AethKind::ack ? r.ack.psn + 1 : r.ack.psn;
    return by_ack.distance_from(end) > 0 ? by_ack : end;
}

/// Returns the first range of PSNs, at or behind `from`, that the peer has answered and whose responses have not arrived. If
/// there is no such range, the result has length 0.
Hole missing_response(const Context& ctx, const Qp& qp, Psn from) {
    const Backlog& b = qp.reorder->responses;
    const Hole hole = hole_from(b, ctx.reorder->window(), from);
    qp.reorder->missing.examined += psn_span(from, hole.first + hole.length);
    if (hole.length != 0) return hole;
    const Psn behind = b.count != 0 && b.end.distance_from(from) > 0 ? b.end : from;
    const int32_t rest = answered_end(qp).distance_from(behind);
    return {behind, rest > 0 ? uint32_t(rest) : 0};
}

/// Returns the approximate number of packets that have overtaken the missing responses before `end`. The result is the number of
/// PSNs from `end` to the newest kept response, plus one for a kept ACK.
uint32_t overtakers(const Reorder& r, Psn end) {
    const int32_t behind = r.responses.count != 0 ? r.responses.end.distance_from(end) : 0;
    return uint32_t(std::max(behind, 0)) + uint32_t(r.has_ack);
}

/// Returns true if responses in [from, end) are missing and were not requested again. Ignores PSNs from next() on: the requester
/// has gone back before these PSNs and sends them again in any case.
bool any_unasked(const Context& ctx, const Qp& qp, Psn from, Psn end) {
    const Psn next = qp.requester.window.next();
    if (next.distance_from(end) < 0) end = next;
    return unasked_responses(ctx, qp, from, end).length != 0;
}

/// Moves `frontier` behind all holes (ranges of missing PSNs) that count as lost. Returns true if responses in these holes are
/// to be requested again.
bool advance_frontier(Context& ctx, Qp& qp) {
    Missing& m = qp.reorder->missing;
    const Patience& patience = qp.reorder->responses.patience;
    bool found = false;
    for (;;) {
        // All responses between the frontier and the hole have arrived.
        const Psn from = m.hole.distance_from(m.frontier) > 0 ? m.hole : m.frontier;
        const Hole h = missing_response(ctx, qp, from);
        if (h.first != m.hole || !m.waits) {
            m.hole = h.first;
            m.since = ctx.now;
        }
        const Psn end = h.first + h.length;
        m.waits = h.length != 0 && !patience.exhausted(overtakers(*qp.reorder, end), ctx.now - m.since);
        if (h.length == 0 || m.waits) return found;
        m.frontier = end;
        found = found || any_unasked(ctx, qp, h.first, end);
    }
}

/// Returns true if responses before the frontier are missing and were not requested again. Also returns true if the request
/// that a kept NAK reports as missing is to be sent again.
bool any_unasked(const Context& ctx, const Qp& qp) {
    const Missing& m = qp.reorder->missing;
    return m.request || any_unasked(ctx, qp, qp.requester.window.acked(), m.frontier);
}

/// Returns the least time from a repeated request to its answer. A response that arrives earlier was sent before the peer
/// received the repeated request.
Nanos shortest_answer(const Qp& qp) { return qp.requester.round_trip.shortest() / 4 * 3; }

}  // namespace

void forget_missing(Qp& qp) {
    Missing& m = qp.reorder->missing;
    m.asked.clear();
    m.frontier = m.hole = qp.requester.window.acked();
    m.waits = m.request = false;
    m.named = m.frontier;
}

bool learn_missing(Context& ctx, Qp& qp, Psn psn) {
    Missing& m = qp.reorder->missing;
    if (m.frontier.distance_from(qp.requester.window.acked()) < 0) m.frontier = qp.requester.window.acked();
    bool lost = false;
    if (m.asked.count() != 0 && m.asked.answered(psn, ctx.now, shortest_answer(qp)) && any_unasked(ctx, qp)) {
        qp.reorder->responses.again = m.frontier;
        lost = true;
    }
    return advance_frontier(ctx, qp) || lost;
}

bool look_for_missing(Context& ctx, Qp& qp) {
    Missing& m = qp.reorder->missing;
    const Psn acked = qp.requester.window.acked();
    m.asked.advance(acked);
    m.request = m.request && m.named.distance_from(acked) > 0;
    if (m.frontier.distance_from(acked) < 0) m.frontier = acked;
    const bool found = advance_frontier(ctx, qp);
    // Also returns true for missing responses that were not requested because the list of repeated requests was full.
    return found || (!qp.requester.window.repair_due() && !m.asked.full() && any_unasked(ctx, qp));
}

void missing_go_back(const Context& ctx, Qp& qp) {
    forget_missing(qp);
    const SendWindow& window = qp.requester.window;
    // The range includes the packets that an earlier roll-back scheduled and that were not sent again yet. These packets will
    // be sent too.
    if (!ctx.selective_repeat || window.unanswered() == 0) return;
    qp.reorder->missing.asked.add_again({window.acked(), window.unanswered()}, window.highest_sent(), ctx.now);
    qp.reorder->missing.frontier = window.highest_sent();
}

void ask_for_all_missing(const Context& ctx, Qp& qp) {
    Missing& m = qp.reorder->missing;
    m.request = m.request || (m.asked.covers(m.named) && m.named.distance_from(qp.requester.window.acked()) > 0);
    m.asked.clear();
    const SendWindow& window = qp.requester.window;
    if (window.repeats())  // the requester still has to send these packets again
        m.asked.add_again({window.next(), psn_span(window.next(), window.highest_sent())}, window.highest_sent(), ctx.now);
    m.frontier = answered_end(qp);
    m.waits = false;
    qp.reorder->responses.again = m.frontier;
}

uint32_t missing_span(const Qp& qp) {
    const Psn acked = qp.requester.window.acked();
    const Missing& m = qp.reorder->missing;
    const Psn end = m.request ? m.named + 1 : m.frontier;
    return uint32_t(std::max(std::max(end.distance_from(acked), m.frontier.distance_from(acked)), 0));
}

Hole unasked_responses(const Context& ctx, const Qp& qp, Psn from, Psn end) {
    const Asked& asked = qp.reorder->missing.asked;
    SendRecord* r = qp.requester.queue.oldest();
    Hole hole{from, 0};
    for (;;) {
        if (hole.length == 0) hole = missing_response(ctx, qp, hole.first);
        const int32_t left = end.distance_from(hole.first);
        if (hole.length == 0 || left <= 0) return {hole.first, 0};
        r = record_at(r, hole.first);
        if (r == nullptr) return {hole.first, 0};
        const uint32_t of_request = rest_of_request(qp, *r, psn_span(r->first_psn, hole.first));
        Hole part{hole.first, std::min({hole.length, of_request, uint32_t(left)})};
        if (needs_response(r->kind)) {
            part = asked.uncovered(part);
            if (part.length != 0) return part;
        } else {  // the request was executed, because a later request was answered
            part.first = part.first + part.length;
        }
        hole.length -= psn_span(hole.first, part.first);
        hole.first = part.first;
    }
}

}  // namespace roci::qp
