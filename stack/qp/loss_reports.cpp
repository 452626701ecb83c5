// Loss reports between two Rocinantes. A sequence NAK reports only one missing packet, so the repair of several losses takes
// several round trips. A loss report contains all losses within LossReport::kMost PSNs. A requester that detects a loss sends
// an inquiry, which requests reports. A peer that is no Rocinante drops the inquiry. A responder that has received an inquiry
// sends a report whenever the report contains something new.
//
// A report acknowledges no packet, completes no work request, consumes no retry and restarts no ACK timeout. If several reports
// contradict what was sent, the QP ignores all further reports. A malformed report has no effect.
#include <algorithm>

#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using Peer = LossReports::Peer;
using wire::LossReport;
using wire::ReportKind;

/// While packets are missing, a responder sends another report after more than this number of newer PSNs have arrived. Such a
/// report shows the requester which repeated packets are lost again.
constexpr int32_t kNewPackets = 16;
constexpr uint32_t kOldPsn = 1u << 22;
constexpr Nanos kBetweenInquiries = 1'000'000;  ///< pause between inquiries if no round trip is known, ns

constexpr Nanos kLeastAnswer = 4'096;  ///< ns; least time from a repeated packet to a report that includes this packet

bool is_requester(Type t) { return t == Type::rc || t == Type::xrc_send; }
bool is_responder(Type t) { return t == Type::rc || t == Type::xrc_recv; }
bool enabled(const Context& ctx) { return ctx.loss_reports && ctx.selective_repeat; }

bool transmit(Context& ctx, Qp& qp, const LossReport& report) {
    io::TxFrame* frame = ctx.out(qp).acquire();
    if (frame == nullptr) return false;
    wire::TransportHeaders h;
    h.opcode = wire::kLossReportOpcode;
    h.dest_qp = qp.dest;
    // Because of this PSN, even a receiver that ignores opcode and version treats the packet as an old duplicate.
    h.psn = qp.responder.sequence.expected() - kOldPsn;
    uint8_t* start = Outbox::place(*frame, wire::header_bytes(qp.path, h.opcode));
    uint8_t* payload = wire::begin_frame(start, qp.path, h, LossReport::kBytes);
    wire::write_loss_report(payload, report);
    const uint32_t bytes = wire::finish_frame(start, qp.path, payload, LossReport::kBytes);
    commit_alone(ctx, qp.spec.port, start, bytes, qp.path.left, qp.spec.qpn.value);
    return true;
}

// ---- requester ------------------------------------------------------------------------------------------------------

/// Returns the least time from a repeated packet to a report that includes this packet. Earlier reports are ignored for this
/// packet. Therefore contradicting reports of a hostile peer cause at most one repetition of a packet per such time.
Nanos shortest_answer(const RoundTrip& times) { return std::max<Nanos>(times.shortest() / 4 * 3, kLeastAnswer); }

/// Returns true if the peer has the packet, according to its newest report.
bool has_arrived(const LossReport& known, Psn psn) {
    const int32_t offset = psn.distance_from(known.base);
    return offset < 0 || (offset < int32_t(known.length) && known.has(uint32_t(offset)));
}

/// Returns true if the report covers only PSNs that were sent.
bool possible(const SendWindow& window, const LossReport& report) {
    return report.base.distance_from(window.highest_sent()) <= 0 && (report.newest + 1).distance_from(window.highest_sent()) <= 0;
}

/// Called when a report contradicts what was sent. After several such reports, losses are repaired without reports.
void refuse(Qp& qp) {
    LossReports& l = qp.reorder->reports;
    if (++l.wrong < LossReports::kMostWrong) return;
    l.peer = Peer::refused;
    Requester& rq = qp.requester;
    if (rq.repair.cause != Repair::Cause::reported) return;
    rq.repair.cause = Repair::Cause::none;
    rq.window.report_lost(0);
}

/// Adds the packets that were sent again because of a NAK to the list `repeated`. Adds at most kMost PSNs, because a report
/// covers no more PSNs, and a repeated READ may have millions of PSNs.
void adopt_repair(Requester& rq, Asked& repeated) {
    const uint32_t sent = std::min(rq.window.lost() - rq.window.repair_left(), LossReport::kMost);
    const bool unknown = sent != 0 && !repeated.full() && !repeated.covers(rq.window.acked());
    if (rq.repair.cause == Repair::Cause::nak && unknown)
        repeated.add({rq.window.acked(), sent}, rq.repair.highest, rq.repair.sent_at);
}

void take_report(Context& ctx, Qp& qp, const LossReport& report) {
    LossReports& l = qp.reorder->reports;
    Requester& rq = qp.requester;
    if (!possible(rq.window, report)) {
        ctx.reorder->count(&ReorderCounters::reports_refused);
        return refuse(qp);
    }
    const bool first = l.peer == Peer::unknown;
    if (!first && int16_t(uint16_t(report.serial - l.known.serial)) <= 0) return;  // a newer report has overtaken this one
    if (report.base.distance_from(rq.window.acked()) < 0 && !first) return;        // an ACK has overtaken the report
    ctx.reorder->count(&ReorderCounters::reports_used);
    if (!first && report.newest.distance_from(l.known.newest) > 0) measure_reported(ctx, qp, report.newest);
    const bool moved = report.newest.distance_from(l.known.newest) > 0 || report.base.distance_from(l.known.base) > 0;
    l.peer = Peer::reports;
    l.known = report;
    rq.repair.mode = RepeatMode::selective;
    rq.repair.creeps = 0;
    rq.repair.trial = 0;
    l.repeated.advance(rq.window.acked());
    adopt_repair(rq, l.repeated);
    const auto arrived = [&](Psn psn) { return has_arrived(report, psn); };
    const uint32_t at = l.repeated.reported(arrived, report.newest, report.places, ctx.now, shortest_answer(rq.round_trip));
    if (at != 0) qp.repair_time.take(uint32_t(ctx.now) - at);
    if (!uses_reports(ctx, qp) || !rq.window.awaits_answer()) return;
    if (first || moved || at != 0) {  // a packet has arrived, so no probe is due yet
        arm_probe(ctx, qp);
        update_timer(ctx, qp);
    }
    repeat_reported(ctx, qp);
}

}  // namespace

void inquire(Context& ctx, Qp& qp) {
    if (!enabled(ctx) || !is_requester(qp.spec.type) || reorder_of(ctx, qp) == nullptr) return;
    LossReports& l = qp.reorder->reports;
    if (l.peer != Peer::unknown || l.inquiries == LossReports::kMostInquiries) return;
    const RoundTrip& times = qp.requester.round_trip;
    const Nanos pause = times.known() ? times.patience() : kBetweenInquiries;
    if (l.inquiries != 0 && uint32_t(ctx.now) - l.inquired_at < pause) return;
    LossReport inquiry;
    inquiry.base = inquiry.newest = qp.requester.window.acked();
    if (!transmit(ctx, qp, inquiry)) return;
    ++l.inquiries;
    l.inquired_at = uint32_t(ctx.now);
    ctx.reorder->count(&ReorderCounters::inquiries);
}

bool uses_reports(const Context& ctx, const Qp& qp) {
    // While responses are missing too, lost requests are repaired without reports.
    return qp.reorder != nullptr && qp.reorder->reports.peer == Peer::reports && enabled(ctx) && !qp.keeps_responses;
}

Hole unrepeated_request(const Qp& qp, Psn from, Psn end) {
    const LossReports& l = qp.reorder->reports;
    const SendRecord* r = qp.requester.queue.oldest();
    if (l.known.base.distance_from(from) > 0) from = l.known.base;
    while (end.distance_from(from) > 0) {
        if (has_arrived(l.known, from)) {
            from = from + 1;
            continue;
        }
        while (r != nullptr && psn_span(r->first_psn, from) >= r->packets) r = r->next;
        if (r == nullptr) break;
        const bool begins = !needs_response(r->kind) || from == r->first_psn || (r->divided && qp.read_cuts.begins(from));
        if (!begins) {  // the PSN belongs to a response
            from = from + rest_of_request(qp, *r, psn_span(r->first_psn, from));
            continue;
        }
        if (!l.repeated.covers(from)) return {from, 1};
        from = from + 1;
    }
    return {end, 0};
}

uint32_t reported_span(const Qp& qp) {
    const LossReport& known = qp.reorder->reports.known;
    return uint32_t(std::max((known.base + known.length).distance_from(qp.requester.window.acked()), 0));
}

void forget_report(Qp& qp) {
    LossReports& l = qp.reorder->reports;
    const SendWindow& window = qp.requester.window;
    l.known.length = 0;
    l.known.base = window.acked();
    l.repeated.clear();
}

// ---- responder ------------------------------------------------------------------------------------------------------

namespace {

/// Moves `frontier` behind all holes (ranges of missing PSNs) that count as lost, but at most kMost PSNs behind the first
/// missing PSN. Returns true if `frontier` has moved.
bool advance_frontier(Context& ctx, Reorder& r) {
    LossReports& l = r.reports;
    const Backlog& b = r.requests;
    if (l.frontier.distance_from(b.base) < 0) l.frontier = b.base;
    for (bool found = false;; found = true) {
        const Psn from = l.hole.distance_from(l.frontier) > 0 ? l.hole : l.frontier;
        const Hole h = hole_from(b, ctx.reorder->window(), from);
        if (h.first != l.hole || !l.waits) {
            l.hole = h.first;
            l.since = ctx.now;
        }
        const Psn end = h.first + h.length;
        const uint32_t overtakers = uint32_t(std::max(b.end.distance_from(end), 0));
        l.waits = h.length != 0 && !b.patience.exhausted(overtakers, ctx.now - l.since);
        if (h.length == 0 || l.waits) return found;
        if (psn_span(b.base, end) > LossReport::kMost) {  // a report covers only the beginning of this hole
            const Psn limit = b.base + LossReport::kMost;
            const bool moves = limit.distance_from(l.frontier) > 0;
            if (moves) l.frontier = limit;
            return found || moves;
        }
        l.frontier = end;
    }
}

LossReport make_report(const Context& ctx, const Qp& qp) {
    const Reorder& r = *qp.reorder;
    LossReport report;
    report.kind = ReportKind::report;
    report.serial = r.reports.serial;
    report.base = qp.responder.sequence.expected();
    report.newest = report.base - 1;
    if (!qp.keeps_requests || qp.waits_requests || r.requests.base != report.base) return report;
    report.newest = r.requests.end - 1;
    report.places = r.requests.patience.places();
    report.length = uint16_t(std::max(r.reports.frontier.distance_from(report.base), 0));
    for (uint32_t i = 0; i < report.length; ++i)
        if (keeps(r.requests, ctx.reorder->window(), report.base + i)) report.set(i);
    return report;
}

}  // namespace

void begin_reports(Qp& qp) {
    LossReports& l = qp.reorder->reports;
    l.frontier = l.hole = l.newest = qp.reorder->requests.base;
    l.waits = l.due = false;
}

void look_for_news(Context& ctx, Qp& qp, Psn psn) {
    Reorder& r = *qp.reorder;
    LossReports& l = r.reports;
    if (!l.wanted || !enabled(ctx) || qp.waits_requests) return;  // a packet that waits for slow memory is not missing
    const bool filled = l.frontier.distance_from(psn) > 0;
    const bool found = advance_frontier(ctx, r);
    const bool open = l.frontier.distance_from(r.requests.base) > 0;
    const bool more = open && r.requests.end.distance_from(l.newest) > kNewPackets;
    if (!found && !more && !(filled && open)) return;
    l.due = true;
    loss_detected(ctx, qp);
    activate_responder(ctx, qp);
}

bool report_due(const Qp& qp) { return qp.reorder->reports.due; }

bool send_report(Context& ctx, Qp& qp) {
    LossReports& l = qp.reorder->reports;
    ++l.serial;
    const LossReport report = make_report(ctx, qp);
    if (!transmit(ctx, qp, report)) return false;
    l.due = false;
    l.newest = report.newest;
    ctx.reorder->count(&ReorderCounters::reports_sent);
    return true;
}

void receive_report(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (ctx.reorder == nullptr) return;
    LossReport report;
    const bool good = enabled(ctx) && wire::read_loss_report(p.payload, p.payload_length, report);
    if (good && report.kind == ReportKind::inquiry && is_responder(qp.spec.type)) {
        if (reorder_of(ctx, qp) == nullptr || qp.reorder->reports.answers == LossReports::kMostAnswers) return;
        qp.reorder->reports.wanted = true;
        if (qp.keeps_requests) look_at_kept(ctx, qp);
        if (qp.reorder != nullptr && send_report(ctx, qp)) ++qp.reorder->reports.answers;
        return;
    }
    const bool sends = is_requester(qp.spec.type) && (qp.state == State::rts || qp.state == State::sqd);
    const bool asked = qp.reorder != nullptr && qp.reorder->reports.inquiries != 0 && qp.reorder->reports.peer != Peer::refused;
    if (good && report.kind == ReportKind::report && sends && asked) return take_report(ctx, qp, report);
    ctx.reorder->count(&ReorderCounters::reports_refused);
}

}  // namespace roci::qp
