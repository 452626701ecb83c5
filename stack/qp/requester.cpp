// The requester converts send WQEs to request packets, in PSN order, as far as window, credits, fences and the limit of READs
// and atomics permit. It also sends lost packets again (repair.cpp) and executes local operations (local_operations.cpp).
#include <cstring>

#include "qp/reorder.hpp"
#include "qp/request_frame.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;
using frames::Begun;
using frames::PacketPart;

/// Returns the number of additional packets that may be in flight during a repair with a window that adapts to the network.
/// Packets behind the lost one arrive but are not acknowledged, so the link would be idle without additional packets. Returns 0
/// if the peer may discard packets behind a lost packet, or if the packet after the last repaired packet was missing too.
uint32_t beside_repair(const Requester& rq, uint32_t most) {
    constexpr uint32_t kFew = 64;
    if (rq.repair.mode != RepeatMode::selective || rq.repair.creeps != 0) return 0;
    return std::max(most / 4, std::min(most, kFew));
}

uint32_t most_in_flight(const Context& ctx, const Qp& qp) {
    const Requester& rq = qp.requester;
    const uint32_t most = cc::window(rq.congestion, ctx.limits(qp));
    if (cc::rests(rq.congestion) || rq.window.lost() == 0) [[likely]]
        return most;
    return most + beside_repair(rq, most);
}

/// Returns true if the record's next packet may be sent now. `most` is the result of most_in_flight().
[[gnu::always_inline]] inline bool may_start(const Qp& qp, const SendRecord& r, uint32_t most) {
    const Requester& rq = qp.requester;
    if (rq.window.in_flight() >= most) return false;
    if (rq.queue.within_message() && r.kind != WorkKind::read) return true;
    if (r.fence && !rq.queue.within_message() && rq.queue.reads_outstanding() != 0) return false;  // IBA 10.8.3.3
    if (needs_response(r.kind)) {
        if (rq.queue.reads_outstanding() >= qp.max_rd_atomic) return false;
        if (!rq.window.may_send(r.packets - rq.queue.packet())) return false;
    }
    // Without credits, a single message may be sent in order to get new credits (IBA 9.7.7.2.5).
    const bool beyond = r.takes_recv && rq.credits_valid && int32_t(r.ssn - rq.credit_limit) > 0;
    return !beyond || !rq.credit_probe;
}

/// Returns true if the packet must carry an ACK request. The last packet of each message, the last packet that the window
/// permits and each packet of a narrow window request an ACK. Other packets request an ACK at intervals. If the window adapts
/// to the network, an interval is at most a quarter of the window, so that the link does not become idle. ACK requests cost
/// little, because a Rocinante answers all requests of a burst with one ACK.
bool ask_for_ack(const Context& ctx, Requester& rq, uint32_t most, bool last) {
    const bool narrow = most <= cc::kWindowAfterTimeout;
    const uint32_t every = cc::rests(rq.congestion) ? ctx.ack_every : std::min(ctx.ack_every, most / 4);
    const bool due = ++rq.since_ack_request >= every || rq.window.in_flight() + 1 >= most || narrow;
    if (!last && !due) return false;
    rq.since_ack_request = 0;
    return true;
}

enum class Step : uint8_t { done, skipped, wait, fault };

enum class AckRequest : uint8_t { no, yes, if_due };

/// State that lasts from one packet to the next within the QP's turn (run_queue.hpp).
struct SendTurn {
    frames::RepeatedFrame middle;
    uint32_t uncounted = 0;  ///< index of the first WQE that is not counted in tx_messages yet
    uint32_t most = 0;       ///< most_in_flight(); constant within a turn, because ACKs arrive between turns
};

/// Completes the frame of a packet whose payload must be fetched from slow memory (mem/slow_memory.hpp). The last packet of the
/// fetched part requests an ACK, so that the ACK timeout does not expire while the next part is fetched.
[[gnu::cold, gnu::noinline]] Step finish_slowly(Context& ctx, Qp& qp, SendRecord& r, PacketPart part, uint32_t length,
                                                bool& ack_request, io::TxFrame& frame, Begun& b, uint32_t& bytes) {
    const abi::SendWqe& w = wqe(r);
    const uint64_t offset = uint64_t(part.packet) << qp.mtu_shift;
    const Staged staged = stage_payload(ctx, qp, frames::sges_of(ctx, qp, w), r.ssn, offset, length, r.length);
    if (staged.result == Staged::Result::refused) {
        r.fault = WcStatus::loc_prot_err;
        return Step::fault;
    }
    if (staged.result == Staged::Result::waits) {
        if (qp.slow != nullptr && qp.slow->payload != nullptr) qp.has_work = false;  // the QP has no work until the fetch is done
        return Step::wait;
    }
    ack_request = ack_request || (staged.ends && !unacknowledged(qp.spec.type));
    b = frames::begin(ctx, qp, r, part, length, ack_request, frame);
    std::memcpy(b.payload, staged.bytes, length);
    bytes = frames::seal(w, b.start, *b.path, b.payload, length);
    return Step::done;
}

/// Counts a packet that is sent again. If this is the last packet of a message, the message is already counted in tx_messages.
[[gnu::cold, gnu::noinline]] void count_again(Context& ctx, Qp& qp, const SendRecord& r, PacketPart part, SendTurn& turn) {
    count(ctx, qp, &EventCounters::retransmits);
    const bool last = part.packet + (needs_response(r.kind) ? part.psns : 1) >= r.packets;
    turn.uncounted = qp.requester.queue.cursor() + uint32_t{last};
}

/// Begins the measurement of a round trip. Called when a packet was sent for the first time, if the packet has an ACK request or
/// if no round-trip time is known yet. If one of the first packets of a connection is lost, the NAK acknowledges the earlier
/// packets, so the measurement ends early.
void measure(const Context& ctx, Qp& qp, Psn psn) {
    Requester& rq = qp.requester;
    if (!rq.round_trip.timing()) rq.round_trip.begin(psn, ctx.now, rq.window.in_flight());
    if (!cc::rests(rq.congestion)) [[unlikely]]
        qp.send_times.add(psn, ctx.now);
}

/// Sends one frame. `again` is true for a retransmission.
[[gnu::always_inline]] inline Step transmit(Context& ctx, Qp& qp, SendRecord& r, PacketPart part, AckRequest request, bool again,
                                            SendTurn& turn) {
    Requester& rq = qp.requester;
    io::TxFrame* frame = ctx.out(qp).acquire();
    if (frame == nullptr) return Step::wait;
    const abi::SendWqe& w = wqe(r);
    const bool carries_data = r.kind == WorkKind::send || r.kind == WorkKind::write || r.kind == WorkKind::atomic_write;
    const uint64_t offset = uint64_t(part.packet) << qp.mtu_shift;
    const uint32_t length = carries_data ? uint32_t(std::min<uint64_t>(qp.mtu, r.length - offset)) : 0;
    const bool last = part.packet + 1 >= r.packets || !carries_data;

    bool ack_request = request == AckRequest::yes || (request == AckRequest::if_due && ask_for_ack(ctx, rq, turn.most, last));
    const bool inner = part.packet != 0 && !last;
    if (!inner) turn.middle.message = nullptr;  // the next message's record may have the same address
    Begun b = inner ? frames::begin_middle(ctx, qp, r, part, ack_request, *frame, turn.middle)
                    : frames::begin(ctx, qp, r, part, length, ack_request, *frame);
    if (b.path == nullptr) {
        r.fault = WcStatus::loc_qp_op_err;
        return Step::fault;
    }
    uint32_t bytes = frames::finish(ctx, qp, w, offset, b.start, *b.path, b.payload, length);
    if (bytes == 0) [[unlikely]] {
        const Step step = finish_slowly(ctx, qp, r, part, length, ack_request, *frame, b, bytes);
        if (step != Step::done) return step;
    }
    ctx.out(qp).commit(b.start, bytes, b.path->left, qp.spec.qpn.value);
    bump(qp.counters.tx_packets);
    qp.counters.tx_bytes += bytes;
    if (again) [[unlikely]]
        count_again(ctx, qp, r, part, turn);
    const bool first = request == AckRequest::if_due && !rq.round_trip.known();  // never true for UC and UD
    if ((ack_request || first) && !again) measure(ctx, qp, r.first_psn + part.packet);
    return Step::done;
}

/// The packets that a turn sends again: the number of frames, and the number of their PSNs, including the responses to READs.
struct Repeated {
    uint32_t frames = 0, psns = 0;
};

/// Sends a lost packet again, with an ACK request.
[[gnu::noinline]] Step transmit_again(Context& ctx, Qp& qp, SendRecord& r, PacketPart part, Repeated& repeated) {
    SendTurn none;
    const Step step = transmit(ctx, qp, r, part, AckRequest::yes, true, none);
    if (step != Step::done) return step;
    ++repeated.frames;
    repeated.psns += part.psns;
    return step;
}

/// Returns the number of PSNs that the packet at the cursor uses. A READ request uses the PSNs of its responses. A repeated
/// request has the same boundaries as before.
[[gnu::always_inline]] inline uint32_t psns_of_next(const Context& ctx, const Qp& qp, const SendRecord& r) {
    if (!needs_response(r.kind)) return 1;
    const Requester& rq = qp.requester;
    const uint32_t rest = rest_of_request(qp, r, rq.queue.packet());
    if (cc::rests(rq.congestion) || rq.window.repeats() || qp.read_cuts.full()) [[likely]]
        return rest;
    return cc::read_part(rq.congestion, qp.adaptation, ctx.limits(qp), qp.max_rd_atomic, rest);
}

/// Called when a request for a part of a READ was sent for the first time, and a further request must follow.
[[gnu::noinline]] void cut_read(Qp& qp, SendRecord& r) {
    qp.read_cuts.add(qp.requester.window.next());
    r.divided = true;
    qp.requester.queue.count_part();
    ++qp.requester.next_ssn;
}

/// Sends the packet at the cursor.
[[gnu::always_inline]] inline Step send_one(Context& ctx, Qp& qp, SendRecord& r, SendTurn& turn) {
    Requester& rq = qp.requester;
    const PacketPart part{rq.queue.packet(), psns_of_next(ctx, qp, r)};
    const AckRequest request = unacknowledged(qp.spec.type) ? AckRequest::no : AckRequest::if_due;
    if (const Step step = transmit(ctx, qp, r, part, request, rq.window.repeats(), turn); step != Step::done) return step;
    if (r.takes_recv && rq.credits_valid && int32_t(r.ssn - rq.credit_limit) > 0) rq.credit_probe = true;
    rq.queue.sent(part.psns);
    if (rq.window.sent(part.psns) && rq.queue.within_message() && r.kind == WorkKind::read) cut_read(qp, r);
    return Step::done;
}

/// Requests the missing responses to one READ request or atomic again. If all of them were requested already, sends the request
/// that a kept NAK reports as missing. A part of a READ may be requested separately, because the peer has answered later
/// packets and has therefore executed the READ. A peer that had not executed the READ would treat the part as a new, shorter
/// READ.
Step request_missing(Context& ctx, Qp& qp, Repeated& repeated) {
    Requester& rq = qp.requester;
    Missing& m = qp.reorder->missing;
    const Psn from = rq.window.repair_next();
    Hole hole = m.asked.full() ? Hole{} : unasked_responses(ctx, qp, from, from + rq.window.repair_left());
    const bool request = hole.length == 0 && m.request && !m.asked.full();
    if (request) hole = {m.named, 1};
    if (hole.length == 0) {
        rq.window.repaired(rq.window.repair_left());
        return Step::skipped;
    }
    SendRecord* r = record_at(rq.queue.oldest(), hole.first);
    if (r == nullptr) return Step::fault;
    const uint32_t packet = psn_span(r->first_psn, hole.first);
    if (request && needs_response(r->kind)) hole.length = rest_of_request(qp, *r, packet);
    r->partly = r->partly || (needs_response(r->kind) && hole.length != rest_of_request(qp, *r, packet));
    const Step step = transmit_again(ctx, qp, *r, {packet, hole.length}, repeated);
    if (step != Step::done) return step;
    m.request = m.request && !request;
    m.asked.add(hole, rq.window.highest_sent(), ctx.now);
    // The request that the NAK reports is sent last, and its PSN may be before `from`. After this request, no packet is left to
    // be sent again.
    rq.window.repaired(request ? rq.window.repair_left()
                               : std::min(psn_span(from, hole.first + hole.length), rq.window.repair_left()));
    return step;
}

/// Sends again the next packet that the peer's loss report names as missing.
Step repeat_reported_one(Context& ctx, Qp& qp, Repeated& repeated) {
    Requester& rq = qp.requester;
    Asked& already = qp.reorder->reports.repeated;
    const Psn from = rq.window.repair_next();
    const Hole hole = already.full() ? Hole{} : unrepeated_request(qp, from, from + rq.window.repair_left());
    if (hole.length == 0) {
        rq.window.repaired(rq.window.repair_left());
        return Step::skipped;
    }
    SendRecord* r = record_at(rq.queue.oldest(), hole.first);
    const uint32_t packet = psn_span(r->first_psn, hole.first);
    const PacketPart part{packet, needs_response(r->kind) ? rest_of_request(qp, *r, packet) : 1};
    const Step step = transmit_again(ctx, qp, *r, part, repeated);
    if (step != Step::done) return step;
    already.add_next(hole.first, rq.window.highest_sent(), ctx.now);
    rq.window.repaired(std::min(psn_span(from, hole.first) + part.psns, rq.window.repair_left()));
    return step;
}

/// Sends the next packet that is treated as lost.
Step send_repair(Context& ctx, Qp& qp, Repeated& repeated) {
    Requester& rq = qp.requester;
    if (rq.repair.cause == Repair::Cause::reported) {
        if (uses_reports(ctx, qp)) return repeat_reported_one(ctx, qp, repeated);
        rq.window.repaired(rq.window.repair_left());  // reports are no longer used; the next probe finds the remaining losses
        return Step::skipped;
    }
    const bool answered = rq.repair.cause == Repair::Cause::response;
    if (answered && qp.keeps_responses) return request_missing(ctx, qp, repeated);
    const Psn psn = rq.window.repair_next();
    SendRecord* r = record_at(rq.queue.oldest(), psn);
    if (r == nullptr) return Step::fault;
    PacketPart part{psn_span(r->first_psn, psn), 1};
    if (answered && !needs_response(r->kind)) {  // the request was executed, because a later request was answered
        rq.window.repaired(rq.window.repair_left());
        return Step::skipped;
    }
    if (needs_response(r->kind)) {
        part.psns = rest_of_request(qp, *r, part.packet);
        if (answered) part.psns = std::min(part.psns, rq.window.repair_left());
        r->partly = r->partly || part.psns != rest_of_request(qp, *r, part.packet);
    }
    const Step step = transmit_again(ctx, qp, *r, part, repeated);
    if (step == Step::done) rq.window.repaired(std::min(part.psns, rq.window.repair_left()));
    return step;
}

/// Sends packets that are treated as lost: up to `quantum` frames, or, if the QP is paced, requests until `quantum` PSNs are
/// used. The PSNs of a repeated READ request are those of its responses.
Repeated send_repairs(Context& ctx, Qp& qp, uint32_t quantum, bool paced) {
    Requester& rq = qp.requester;
    Repeated sent;
    while ((paced ? sent.psns : sent.frames) < quantum && rq.window.repair_due()) {
        const Step step = send_repair(ctx, qp, sent);
        if (step == Step::wait) return sent;
        if (step == Step::fault) {
            roll_back(ctx, qp);  // then the packet is sent in the ordinary way, which detects and reports the fault
            return sent;
        }
    }
    if (sent.frames != 0) {
        rq.repair.sent_at = uint32_t(ctx.now);
        // If the QP has lost a packet of each message, only the repaired packet can provide a round-trip time.
        if (!rq.round_trip.known() && rq.repair.cause == Repair::Cause::nak)
            rq.round_trip.begin(rq.repair.begin, ctx.now, rq.window.in_flight());
        arm_probe(ctx, qp);
        update_timer(ctx, qp);
    }
    return sent;
}

/// Completes sent messages of UC and UD.
void complete_unacknowledged(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    while (!rq.queue.at_oldest()) complete_send(ctx, qp, WcStatus::success);
    rq.window.acknowledge_all_sent();
}

/// Sends the packet at the cursor, or executes the local operation at the cursor.
Step take_step(Context& ctx, Qp& qp, SendRecord& r, SendTurn& turn) {
    if (r.fault != WcStatus::success) return Step::fault;
    if (!may_start(qp, r, turn.most)) return Step::wait;
    if (r.kind != WorkKind::local) return send_one(ctx, qp, r, turn);
    const LocalResult result = execute_local(ctx, qp, r);
    if (result != LocalResult::done) return result == LocalResult::waits ? Step::wait : Step::fault;
    qp.requester.queue.advance();
    ++turn.uncounted;
    retire_local(ctx, qp);
    return Step::done;
}

/// Counts the messages whose last packet was sent in this turn for the first time.
void count_sent(Context& ctx, Qp& qp, const SendTurn& turn) {
    const uint32_t messages = qp.requester.queue.cursor() - turn.uncounted;
    bump(qp.counters.events.tx_messages, messages);
    bump(ctx.tally(qp).tx_messages, messages);
}

/// Returns true if a lost packet is to be sent again now. Repairs do not wait for the congestion controller.
bool may_repair(const Requester& rq) { return rq.window.repair_due() && !rq.deadlines.pending(Deadline::rnr); }

/// Returns true if nothing but the congestion controller can delay the next packet.
bool may_send_unpaced(const Qp& qp) {
    const Requester& rq = qp.requester;
    if (rq.deadlines.pending(Deadline::rnr) || rq.blocked) return false;
    // In SQD, the requester finishes started messages and starts no new message (IBA 10.3.1.5).
    return qp.state == State::rts || (qp.state == State::sqd && (rq.queue.within_message() || rq.window.repeats()));
}

bool may_send(const Context& ctx, const Qp& qp) {
    return cc::not_before(qp.requester.congestion) <= ctx.now && may_send_unpaced(qp);
}

}  // namespace

bool has_requests(const Context& ctx, const Qp& qp) {
    const Requester& rq = qp.requester;
    return (may_repair(rq) || cc::not_before(rq.congestion) <= ctx.now) && has_requests_unpaced(ctx, qp);
}

bool has_requests_unpaced(const Context& ctx, const Qp& qp) {
    const Requester& rq = qp.requester;
    if (may_repair(rq)) return qp.state == State::rts || qp.state == State::sqd;
    if (!may_send_unpaced(qp)) return false;
    if (rq.queue.all_sent()) return posted(qp) && qp.state == State::rts && rq.queue.length() < qp.spec.sq.depth;
    return may_start(qp, *rq.queue.current(), most_in_flight(ctx, qp));
}

bool hold_back(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    const Nanos until = cc::not_before(rq.congestion);
    if (until <= ctx.now) [[likely]]
        return false;
    if (qp.state != State::rts && qp.state != State::sqd) return false;
    rq.deadlines.set(Deadline::pacing, until);
    update_timer(ctx, qp);
    return true;
}

uint32_t send_requests(Context& ctx, Qp& qp, uint32_t quantum) {
    ROCI_STAGE(requester);
    Requester& rq = qp.requester;
    uint32_t sent = 0;
    SendTurn turn;
    const uint64_t bytes_before = qp.counters.tx_bytes;
    quantum = cc::begin_turn(rq.congestion, qp.adaptation, ctx.limits(qp),
                             {ctx.now, quantum, !rq.window.awaits_answer(), rq.round_trip.smoothed()});
    const bool paced = !cc::rests(rq.congestion) && qp.adaptation.far;
    Repeated repairs;
    if (may_repair(rq)) [[unlikely]]
        repairs = send_repairs(ctx, qp, quantum, paced);
    sent = repairs.frames;
    const Psn first_new = rq.window.next();
    turn.uncounted = rq.queue.cursor();
    turn.most = most_in_flight(ctx, qp);
    Step step = Step::done;
    // The responses to READs, too, must not arrive at the bottleneck in long bursts.
    const auto left = [&] { return !paced || repairs.psns + psn_span(first_new, rq.window.next()) < quantum; };
    while (sent < quantum && left() && may_send(ctx, qp)) {
        if (rq.queue.all_sent() && (qp.state != State::rts || !fetch(qp, quantum - sent))) break;
        SendRecord& r = *rq.queue.current();
        step = take_step(ctx, qp, r, turn);
        if (step != Step::done) break;
        ++sent;
    }
    if (sent != 0) count_sent(ctx, qp, turn);
    if (step == Step::fault) [[unlikely]] {
        rq.blocked = true;  // the fault is reported when all earlier requests have completed
        if (unacknowledged(qp.spec.type)) complete_unacknowledged(ctx, qp);
        if (rq.queue.at_oldest()) fail_send(ctx, qp, rq.queue.current()->fault);
    }
    if (sent == 0 || qp.state == State::err || qp.state == State::sqe) return sent;
    if (unacknowledged(qp.spec.type)) {
        complete_unacknowledged(ctx, qp);
        return sent;
    }
    cc::on_sent(rq.congestion, qp.adaptation, ctx.limits(qp),
                {ctx.now, repairs.psns + psn_span(first_new, rq.window.next()), uint32_t(qp.counters.tx_bytes - bytes_before),
                 rq.round_trip.smoothed(), rq.window.lost() != 0, rq.window.in_flight() >= turn.most});
    if (!rq.deadlines.pending(Deadline::ack)) {
        restart_ack_timer(ctx, qp);
    }
    return sent;
}

}  // namespace roci::qp
