// Repairs a loss. The requester sends only the missing packet again, with an ACK request, and continues to send new packets. A
// peer that keeps the packets behind a lost packet acknowledges all of them at once. A peer that discards these packets reports
// the very next packet as missing. The requester then goes back N, and for the next losses (Repair::go_backs) it goes back N at
// once. No negotiation is needed, because a requester may repeat any request that is not acknowledged (IBA 9.7.5.1.1).
//
// No response reveals the loss of a repaired packet or of the last packet of a burst. Therefore the requester sends the oldest
// packet again after a few round trips without progress. Such a probe does not count as a retry.
#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using Cause = Repair::Cause;

constexpr uint8_t kMostCreeps = 6;  // limit of Repair::creeps; a repair repeats at least 2^creeps packets
constexpr uint8_t kFirstGoBacks = 4, kMostTrials = 5;
constexpr uint8_t kMostProbeDoublings = 10, kProbesToNarrow = 2;

/// Returns the number of PSNs to send again for the oldest request. A repeated READ request covers all its remaining responses.
/// If the first request was lost, a peer would execute a shorter request as a different READ.
uint32_t whole_request(const Qp& qp) {
    const SendRecord& r = *qp.requester.queue.oldest();
    return needs_response(r.kind) ? rest_of_request(qp, r, psn_span(r.first_psn, qp.requester.window.acked())) : 1;
}

void begin_repair(Context& ctx, Qp& qp, Cause cause, uint32_t psns) {
    Requester& rq = qp.requester;
    rq.window.report_lost(psns);
    Repair& r = rq.repair;
    const bool probes = r.cause == cause && r.begin == rq.window.acked();
    if (cause == Cause::nak && !probes) qp.repair_time.begin(ctx.now);
    // If the last repair was answered, the packets that were sent before that repair have left the network. Then only newer
    // packets count in `ahead`.
    if (r.cause == Cause::none || r.end.distance_from(rq.window.acked()) <= 0)
        r.ahead = uint16_t(std::min({psn_span(r.highest, rq.window.next()), rq.window.in_flight(), 0xffffu}));
    r.cause = cause;
    r.begin = rq.window.acked();
    r.end = r.begin + rq.window.lost();
    r.is_first = qp.repair_time.record_repeated(r.begin, r.end);
    r.highest = rq.window.next();
    const SendRecord* last = record_at(rq.queue.oldest(), r.end - 1);
    r.by_response = last != nullptr && needs_response(last->kind);
    r.sent_at = uint32_t(ctx.now);
    rq.round_trip.abort();
    qp.send_times.remove(r.begin, r.end);
    activate_requester(ctx, qp);
}

void settle_for_go_back_n(Repair& r) {
    r.mode = RepeatMode::go_back_n;
    r.go_backs = uint8_t(kFirstGoBacks << r.trial);
    if (r.trial < kMostTrials) ++r.trial;
    r.creeps = 0;
}

void go_back(Context& ctx, Qp& qp) {
    Repair& r = qp.requester.repair;
    r.cause = Cause::none;
    if (r.mode == RepeatMode::go_back_n && r.go_backs != 0 && --r.go_backs == 0) r.mode = RepeatMode::unknown;
    roll_back(ctx, qp);
}

/// Returns true if the missing packets may be sent again without the packets behind them.
bool can_repair(const Context& ctx, const Qp& qp) {
    const Requester& rq = qp.requester;
    if (!ctx.selective_repeat || rq.repair.mode == RepeatMode::go_back_n) return false;
    return !rq.queue.empty() && rq.queue.oldest()->kind != WorkKind::local && rq.window.awaits_answer();
}

/// Called when the peer has reported that the oldest unacknowledged packet is missing.
void repair_request(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    if (!can_repair(ctx, qp)) return go_back(ctx, qp);
    // The peer sends no report if no packet arrives behind a gap. Losses at the end of a burst are therefore repaired without
    // reports.
    if (uses_reports(ctx, qp) && reported_span(qp) != 0) return begin_repair(ctx, qp, Cause::reported, reported_span(qp));
    const uint32_t psns = std::max(whole_request(qp), 1u << rq.repair.creeps);
    begin_repair(ctx, qp, Cause::nak, psns);
}

/// Called when the packet after the repaired packet is missing too. Either the peer keeps no packets, or several packets were
/// lost.
void crept(Context& ctx, Qp& qp) {
    Repair& r = qp.requester.repair;
    if (r.mode == RepeatMode::unknown || ++r.creeps > kMostCreeps) settle_for_go_back_n(r);
    repair_request(ctx, qp);
}

/// Returns true if all responses to a repeated READ have arrived, so that the next event will show whether the peer keeps
/// packets.
bool awaits_proof(const Requester& rq) {
    const Repair& r = rq.repair;
    return r.cause == Cause::nak && r.by_response && r.end == rq.window.acked();
}

void jumped(Repair& r) {
    r.mode = RepeatMode::selective;
    r.creeps = 0;
    r.trial = 0;
}

/// Returns true if a packet that arrives now can be a reply to the repair. A packet that arrives earlier was sent before the
/// repair reached the peer.
bool answers_repair(const Requester& rq, Nanos now) {
    return !rq.window.repair_due() && uint32_t(now) - rq.repair.sent_at >= rq.round_trip.shortest() / 4 * 3;
}

}  // namespace

namespace {

Nanos patience(const Qp& qp) {
    const Requester& rq = qp.requester;
    // The reorder buffer holds responses behind a missing one. Each later response restarts this time, because it shows that the
    // peer still answers. If no response arrives for pause(), repeated requests or their answers are lost.
    if (qp.keeps_responses) return rq.round_trip.pause();
    if (rq.window.lost() != 0) return rq.round_trip.patience(rq.repair.ahead, rq.window.in_flight(), qp.repair_time.loaded());
    const bool begins = rq.congestion.policy != cc::Policy::fixed_window && qp.adaptation.samples < cc::State::kFewSamples;
    return begins ? rq.round_trip.first_patience() : rq.round_trip.patience();
}

}  // namespace

void arm_probe(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    const bool probes = ctx.selective_repeat && rq.round_trip.known() && rq.window.awaits_answer();
    const Nanos wait = patience(qp) << std::min(rq.repair.probes, kMostProbeDoublings);
    rq.deadlines.set(Deadline::probe, probes ? ctx.now + wait : kNever);
}

namespace {

/// Returns true if the packet that a NAK reports was already sent again, or has arrived according to a newer report. If the NAK
/// is newer than the report, discards the report and returns false.
bool report_answers_nak(const Context& ctx, Qp& qp) {
    if (!uses_reports(ctx, qp)) return false;
    const Psn named = qp.requester.window.acked();
    const LossReports& l = qp.reorder->reports;
    if (l.repeated.covers(named) || l.known.base.distance_from(named) > 0) return true;
    if (named.distance_from(l.known.base) > 0) forget_report(qp);  // the NAK is newer
    return false;
}

}  // namespace

void repeat_reported(Context& ctx, Qp& qp) {
    const SendWindow& window = qp.requester.window;
    const uint32_t span = std::min(reported_span(qp), window.in_flight());
    if (span == 0 || qp.reorder->reports.repeated.full() || !can_repair(ctx, qp)) return;
    if (unrepeated_request(qp, window.acked(), window.acked() + span).length == 0) return;
    cc::on_loss(qp.requester.congestion, qp.adaptation, ctx.limits(qp), ctx.now, qp.requester.round_trip.smoothed());
    begin_repair(ctx, qp, Cause::reported, span);
}

void request_lost(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    inquire(ctx, qp);
    if (report_answers_nak(ctx, qp)) return;
    const Repair& r = rq.repair;
    const bool known = r.cause != Cause::none && r.begin == rq.window.acked() && rq.window.lost() != 0;
    const bool under_way = qp.keeps_responses && qp.reorder->missing.asked.covers(rq.window.acked());
    if (under_way || (known && !answers_repair(rq, ctx.now))) return;  // the repair of this packet is in progress
    cc::on_loss(rq.congestion, qp.adaptation, ctx.limits(qp), ctx.now, rq.round_trip.smoothed());
    if (!take_retry(ctx, qp, rq.retries_left, abi::WcStatus::retry_exc_err)) return;
    // The last response to a repeated READ does not show whether the requests behind that READ have arrived. This NAK shows
    // that one of these requests is missing.
    if (awaits_proof(rq)) {
        crept(ctx, qp);
    } else {
        repair_request(ctx, qp);
    }
    restart_ack_timer(ctx, qp);
}

void response_lost(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    cc::on_loss(rq.congestion, qp.adaptation, ctx.limits(qp), ctx.now, rq.round_trip.smoothed());
    const bool repairs = qp.keeps_responses && ctx.selective_repeat && rq.window.awaits_answer() && !rq.queue.empty();
    if (repairs) {
        begin_repair(ctx, qp, Cause::response, missing_span(qp));
    } else {
        roll_back(ctx, qp);
    }
    restart_ack_timer(ctx, qp);
}

void later_request_lost(Context& ctx, Qp& qp, Psn psn) {
    if (!qp.keeps_responses || qp.requester.repair.mode != RepeatMode::selective || !can_repair(ctx, qp)) return;
    Missing& m = qp.reorder->missing;
    if (m.asked.covers(psn)) return;
    m.named = psn;
    m.request = true;
    response_lost(ctx, qp);
}

namespace {

/// Measures the round trip of a packet that was sent again. Karn's algorithm excludes such packets, but a QP that loses a packet
/// of each window gets no other measurement while the network's queues are short. The sample is unambiguous if no earlier repair
/// sent the packet again and if a probe preceded the repair: the peer was silent for a few round trips before the probe, so the
/// first transmission was lost and not only late.
void measure_repair(const Context& ctx, Requester& rq, bool probed) {
    const Repair& r = rq.repair;
    if (r.cause != Cause::nak || !r.after_probe || !r.is_first || probed || r.end != r.begin + 1) return;
    rq.round_trip.take_repair(uint32_t(ctx.now) - r.sent_at);
}

/// Called when all packets that were sent again are acknowledged. `probed` is true if a probe has sent them once more.
void repaired(Context& ctx, Qp& qp, bool probed) {
    Requester& rq = qp.requester;
    Repair& r = rq.repair;
    const bool all = rq.window.acked().distance_from(r.highest) >= 0;
    const bool creeps = rq.window.acked() == r.end && !all;
    // The responses to a READ are acknowledged one by one, even if the peer keeps packets. Only the next response, a NAK or an
    // expired probe deadline will show whether the peer keeps packets.
    if (r.by_response && creeps && r.cause == Cause::nak) return;
    const Cause cause = std::exchange(r.cause, Cause::none);
    if (cause == Cause::nak) {
        qp.repair_time.end(r.ahead, psn_span(r.begin, r.highest), ctx.now);
        if (creeps) return crept(ctx, qp);
        if (r.highest != r.end) jumped(r);
    }
    // The reply to a probe acknowledges all packets before the next missing one. Possibly the peer has already reported that
    // packet and the NAK was lost. A peer does not repeat a NAK.
    if ((cause == Cause::probe || probed) && !all && !r.by_response && answers_repair(rq, ctx.now)) repair_request(ctx, qp);
}

}  // namespace

void observe_repair(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    Repair& r = rq.repair;
    const bool ends = r.cause != Cause::none && rq.window.acked().distance_from(r.end) >= 0;
    // The ACK of a packet behind the repaired one has waited for the repair.
    if (ends && !rq.round_trip.times(r.begin)) rq.round_trip.abort();
    rq.round_trip.end(rq.window.acked(), ctx.now);
    const bool probed = std::exchange(r.probes, uint8_t{0}) != 0;
    const bool all_sent = !rq.window.repair_due();
    if (ends && all_sent) measure_repair(ctx, rq, probed);
    r.after_probe = probed;
    if (ends) repaired(ctx, qp, probed);
}

void probe(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    if (!rq.window.awaits_answer() || rq.deadlines.pending(Deadline::rnr)) return;
    if (rq.queue.empty() || rq.queue.oldest()->kind == WorkKind::local) return;
    ++rq.probes;
    inquire(ctx, qp);
    const bool reports = uses_reports(ctx, qp);
    if (reports) forget_report(qp);
    // A single unanswered probe may be lost by chance. Two unanswered probes indicate that the network cannot carry the current
    // load.
    if (rq.repair.probes == kProbesToNarrow) cc::on_timeout(rq.congestion, qp.adaptation, ctx.limits(qp), ctx.now);
    Repair& r = rq.repair;
    if (r.probes != 0xff) ++r.probes;
    if (r.mode == RepeatMode::unknown && !qp.keeps_responses && awaits_proof(rq)) {
        crept(ctx, qp);
        return restart_ack_timer(ctx, qp);  // no packet is outstanding before the requester's next turn
    }
    if (qp.keeps_responses) ask_for_all_missing(ctx, qp);
    const uint32_t missing = qp.keeps_responses ? missing_span(qp) : 0;
    if (missing != 0) {
        begin_repair(ctx, qp, Cause::response, missing);
    } else {
        const uint32_t again = std::max(reports ? 0 : rq.window.lost(), whole_request(qp));
        // If the last cause was `response`, nothing shows any more that the oldest request was executed, because no response is
        // kept. The new cause is therefore `probe`.
        begin_repair(ctx, qp, r.cause == Cause::nak ? Cause::nak : Cause::probe, again);
    }
    arm_probe(ctx, qp);
}

}  // namespace roci::qp
