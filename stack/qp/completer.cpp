// The completer processes ACKs, NAKs, and READ and atomic responses (IBA 9.7.5, 9.7.6). A response that answers no outstanding
// request is counted, but not executed.
#include <cassert>
#include <cstring>

#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

bool has_own_response(const SendRecord& r) { return needs_response(r.kind); }

/// Activates the requester if the requester has work or if SQ_DRAINED may be due. A requester with work may have waited for the
/// window or for credits. A requester without work gets no turn (run_queue.hpp), because otherwise each ACK would cost an
/// additional turn of the QP.
void go_on(Context& ctx, Qp& qp) {
    if (qp.has_work || qp.sqd_pending) activate(ctx, qp);
}

/// Returns the round trip without the time for which the response may have waited for this engine. Such a wait is not caused by a
/// queue of the network. Swift (Kumar et al., SIGCOMM 2020) also separates the delay of hosts from the delay of the network. The
/// result is not shorter than the shortest round trip. 0 means that no round trip was measured.
uint32_t without_wait(const Context& ctx, const RoundTrip& times, uint32_t sample) {
    constexpr uint32_t kShort = 4096;  // ns; usual time of a round
    if (ctx.unseen <= kShort || sample <= times.shortest()) return sample;
    return sample > ctx.unseen ? std::max(sample - ctx.unseen, times.shortest()) : times.shortest();
}

/// Reports `packets` acknowledged packets, with a measured round trip if there is one, to the congestion controller.
void adapt(Context& ctx, Qp& qp, uint32_t packets, uint32_t sample) {
    Requester& rq = qp.requester;
    const RoundTrip& times = rq.round_trip;
    const uint32_t before = rq.window.in_flight() + packets;
    cc::on_ack(rq.congestion, qp.adaptation, ctx.limits(qp),
               {ctx.now, packets, before, without_wait(ctx, times, sample), times.smoothed(), times.shortest()});
}

}  // namespace

void measure_reported(Context& ctx, Qp& qp, Psn newest) {
    if (cc::rests(qp.requester.congestion)) [[likely]]
        return;
    if (const uint32_t sample = qp.send_times.take(newest + 1, ctx.now)) adapt(ctx, qp, 0, sample);
}

namespace {

/// Called when the PSNs from `before` to acked() were acknowledged. Updates the repair and the congestion controller, resets
/// the retries, restarts the timers and activates the requester.
void progressed(Context& ctx, Qp& qp, Psn before) {
    Requester& rq = qp.requester;
    observe_repair(ctx, qp);
    if (!cc::rests_open(rq.congestion, ctx.limits(qp))) [[unlikely]]
        adapt(ctx, qp, psn_span(before, rq.window.acked()), qp.send_times.take(rq.window.acked(), ctx.now));
    rq.timeouts_in_a_row = 0;
    rq.retries_left = qp.retry_cnt;
    rq.rnr_retries_left = qp.rnr_retry;
    rq.implied_nak_pending = false;
    restart_ack_timer(ctx, qp);
    go_on(ctx, qp);
}

void retire(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    if (rq.queue.oldest()->takes_recv) rq.credit_probe = false;
    complete_send(ctx, qp, WcStatus::success);
}

}  // namespace

void retire_local(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    while (!rq.queue.at_oldest() && rq.queue.oldest()->kind == WorkKind::local && rq.queue.oldest()->executed) retire(ctx, qp);
}

namespace {

/// Moves the cursor past acknowledged packets. After a roll-back, a packet may be acknowledged before it is sent again. Such a
/// packet is not sent again.
void skip_acknowledged(Requester& rq, bool overtaken) {
    if (overtaken || rq.queue.behind()) rq.queue.rewind(rq.window.acked());
}

/// Called when a response packet of the oldest record was executed. `final` is true for the last packet of the response.
void responded(Context& ctx, Qp& qp, Psn psn, bool final) {
    Requester& rq = qp.requester;
    const bool overtaken = rq.window.acknowledge(1);
    if (rq.queue.oldest()->divided && qp.read_cuts.advance(rq.window.acked())) [[unlikely]]
        rq.queue.part_answered();
    if (final) retire(ctx, qp);
    skip_acknowledged(rq, overtaken);
    retire_local(ctx, qp);
    progressed(ctx, qp, psn);
    if (!rq.queue.empty() && rq.blocked && rq.queue.at_oldest()) fail_send(ctx, qp, rq.queue.oldest()->fault);
}

enum class Acked : uint8_t { all, response_missing, failed };

/// Acknowledges all packets before `end`. Stops at a READ or atomic whose response has not arrived. This response is lost,
/// because the peer has acknowledged a later packet (IBA 9.7.5.1.4, implied NAK).
Acked acknowledge(Context& ctx, Qp& qp, Psn end) {
    Requester& rq = qp.requester;
    uint32_t span = psn_span(rq.window.acked(), end);
    Acked result = Acked::all;
    bool overtaken = false;
    while (!rq.queue.empty() && span != 0) {
        SendRecord& r = *rq.queue.oldest();
        if (has_own_response(r)) {
            result = Acked::response_missing;
            break;
        }
        const uint32_t rest = psn_span(rq.window.acked(), r.first_psn + r.packets);
        if (rest > span) {
            overtaken |= rq.window.acknowledge(span);
            break;
        }
        overtaken |= rq.window.acknowledge(rest);
        span -= rest;
        retire(ctx, qp);
    }
    skip_acknowledged(rq, overtaken);
    retire_local(ctx, qp);
    if (!rq.queue.empty() && rq.blocked && rq.queue.at_oldest()) {
        fail_send(ctx, qp, rq.queue.oldest()->fault);
        return Acked::failed;
    }
    return result;
}

/// Restarts the timers after a response that is not the expected response. The response shows that the peer still processes
/// earlier requests, so a repeated request waits at the peer. Without the restart, the retries could be exhausted while a slow
/// peer answers a large READ. The timers must only detect a silent peer.
void still_answered(Context& ctx, Qp& qp) {
    if (qp.requester.deadlines.pending(Deadline::ack)) restart_ack_timer(ctx, qp);
}

}  // namespace

void implied_nak(Context& ctx, Qp& qp) {
    loss_detected(ctx, qp);
    count(ctx, qp, &EventCounters::implied_naks);
    note(ctx, qp, Happening::response_missing, qp.requester.window.acked());
    Requester& rq = qp.requester;
    // If the QP keeps no responses behind a missing one, every later response indicates the same loss. The QP then goes back to
    // the missing response only once, and waits for the expected PSN or the timer. If the QP keeps responses, further losses
    // before the expected response arrives consume no further retry.
    const bool pending = std::exchange(rq.implied_nak_pending, true);
    if (pending && !(qp.keeps_responses && ctx.selective_repeat)) return still_answered(ctx, qp);
    if (!pending && !take_retry(ctx, qp, rq.retries_left, WcStatus::retry_exc_err)) return;
    response_lost(ctx, qp);
}

namespace {

/// Measures the round trip of a response that arrives while an earlier response is missing. The response is executed later, but
/// the time until its execution is not caused by a queue of the network. TCP, too, measures a segment when the segment is
/// acknowledged selectively (RFC 8985 6.2).
void measure_early(Context& ctx, Qp& qp, Psn psn) {
    if (cc::rests(qp.requester.congestion)) [[likely]]
        return;
    if (const uint32_t sample = qp.send_times.take_one(psn, ctx.now)) adapt(ctx, qp, 0, sample);
}

/// Called for a packet that follows a missing response.
void response_missing(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (!p.info->has(wire::kAck)) measure_early(ctx, qp, p.psn);
    keep_response(ctx, qp, p) ? still_answered(ctx, qp) : implied_nak(ctx, qp);
}

void learn_credits(Qp& qp, const wire::Packet& p) {
    Requester& rq = qp.requester;
    const uint8_t code = aeth_value(p.syndrome);
    rq.credits_valid = code != kNoCredits;
    if (!rq.credits_valid) return;
    // LSN = MSN + credits (IBA 9.7.7.2.3). The first SSN is 1, and the peer's MSN starts at 0. Therefore the low 24 bits of a
    // request's SSN equal the peer's MSN after that request.
    const uint32_t limit = p.msn.value + kCredits[code];
    const int32_t ahead = int32_t((limit - rq.credit_limit) << 8) >> 8;
    if (ahead > 0) rq.credit_limit += uint32_t(ahead);
}

void receive_ack(Context& ctx, Qp& qp, const wire::Packet& p) {
    learn_credits(qp, p);
    const Psn before = qp.requester.window.acked();
    const Acked result = acknowledge(ctx, qp, p.psn + 1);
    if (result == Acked::failed) return;
    if (qp.requester.window.acked() != before) progressed(ctx, qp, before);
    if (result == Acked::response_missing) response_missing(ctx, qp, p);
    go_on(ctx, qp);  // the ACK may carry new credits
}

/// Completion status per NAK code (IBA 9.9.2.2 … 9.9.2.4.2).
constexpr WcStatus kNakStatus[] = {WcStatus::success, WcStatus::rem_inv_req_err, WcStatus::rem_access_err, WcStatus::rem_op_err,
                                   WcStatus::rem_inv_rd_req_err};

void receive_nak(Context& ctx, Qp& qp, const wire::Packet& p, bool kept) {
    Requester& rq = qp.requester;
    const uint8_t code = aeth_value(p.syndrome);
    if (code >= std::size(kNakStatus)) {
        count(ctx, qp, &EventCounters::dropped);
        return;
    }
    const Psn before = rq.window.acked();
    const Acked result = acknowledge(ctx, qp, p.psn);  // all packets before the PSN of the NAK have arrived
    if (result == Acked::failed) return;
    if (rq.window.acked() != before) progressed(ctx, qp, before);
    if (code == uint8_t(NakCode::psn_sequence)) {
        if (!kept) {
            count(ctx, qp, &EventCounters::seq_nak_received);
            note(ctx, qp, Happening::seq_nak_received, p.psn);
        }
        // If a response before the PSN of the NAK is missing, the NAK is kept until that response has arrived. If the peer
        // keeps packets, the request that the NAK reports as missing is sent again now.
        if (result == Acked::response_missing) {
            response_missing(ctx, qp, p);
            return later_request_lost(ctx, qp, p.psn);
        }
        if (!rq.window.awaits_answer()) return;  // a repeated NAK; the requester has already gone back
        return request_lost(ctx, qp);
    }
    if (result == Acked::response_missing) return implied_nak(ctx, qp);
    fail_send(ctx, qp, kNakStatus[code]);
}

void receive_rnr_nak(Context& ctx, Qp& qp, const wire::Packet& p) {
    Requester& rq = qp.requester;
    const Psn before = rq.window.acked();
    const Acked result = acknowledge(ctx, qp, p.psn);
    if (result == Acked::failed) return;
    if (rq.window.acked() != before) progressed(ctx, qp, before);
    count(ctx, qp, &EventCounters::rnr_nak_received);
    note(ctx, qp, Happening::rnr_nak_received, p.psn);
    // the value 7 means unlimited retries (IBA 9.7.5.2.8 and modify_qp's rnr_retry)
    if (qp.rnr_retry != 7 && !take_retry(ctx, qp, rq.rnr_retries_left, WcStatus::rnr_retry_exc_err)) return;
    roll_back(ctx, qp);
    rq.deadlines.clear(Deadline::ack);
    rq.deadlines.clear(Deadline::probe);
    rq.deadlines.set(Deadline::rnr, ctx.now + Nanos{1000} * kRnrTimerUs[aeth_value(p.syndrome)]);
    update_timer(ctx, qp);
}

/// Acknowledges all packets before the response's PSN. If the response belongs to the oldest record, returns this record.
/// Returns nullptr if the response is not expected or the QP has failed.
[[gnu::always_inline]] inline SendRecord* awaited_record(Context& ctx, Qp& qp, const wire::Packet& p) {
    Requester& rq = qp.requester;
    const Psn before = rq.window.acked();
    const Acked result = acknowledge(ctx, qp, p.psn);
    if (result == Acked::failed) return nullptr;
    if (rq.window.acked() != before) progressed(ctx, qp, before);
    // The response is the expected one if acked() equals its PSN and the oldest record is a READ or atomic. If acked() is still
    // before that PSN, an earlier response is missing (implied NAK).
    if (rq.window.acked() != p.psn) {
        result == Acked::response_missing ? response_missing(ctx, qp, p) : count(ctx, qp, &EventCounters::duplicates);
        return nullptr;
    }
    if (!rq.queue.empty() && has_own_response(*rq.queue.oldest())) return rq.queue.oldest();
    count(ctx, qp, &EventCounters::duplicates);
    return nullptr;
}

SgeList sges_of(const Context& ctx, const Qp& qp, const SendRecord& r) {
    const abi::SendWqe& w = wqe(r);
    return {ctx, qp.spec.pd, {reinterpret_cast<const abi::Sge*>(&w + 1), w.num_sge}};
}

/// Handles a response that needs slow memory (mem/slow_memory.hpp). If the memory cannot be written, the QP fails. If the
/// response waits, the timer restarts, because the peer is not silent. If the response could not be kept, the timer expires and
/// the QP requests the response again.
void response_waits(Context& ctx, Qp& qp, Placing placing) {
    if (placing == Placing::refused) return fail_send(ctx, qp, WcStatus::loc_prot_err);
    if (placing == Placing::waits) restart_ack_timer(ctx, qp);
}

void receive_read_response(Context& ctx, Qp& qp, const wire::Packet& p) {
    // After a roll-back, a response to the first request is as valid as a response to the repeated request.
    SendRecord* r = awaited_record(ctx, qp, p);
    if (r == nullptr) return;
    if (r->kind == WorkKind::atomic) {
        count(ctx, qp, &EventCounters::duplicates);
        return;
    }
    const uint32_t position = psn_span(r->first_psn, p.psn);
    const uint64_t offset = uint64_t(position) << qp.mtu_shift;
    const bool final = position + 1 == r->packets;
    const uint64_t asked_for = r->kind == WorkKind::read ? r->length : 0;  // other responses are empty
    const uint32_t expected = uint32_t(std::min<uint64_t>(qp.mtu, asked_for - offset));
    const bool ends = p.info->has(wire::kLast | wire::kOnly);
    // An opcode out of order fails the QP (IBA 9.7.5.1.6).
    const bool must_end = final || (r->divided && qp.read_cuts.begins(p.psn + 1));
    if (must_end ? !ends : ends && !r->partly) return fail_send(ctx, qp, WcStatus::bad_resp_err);
    if (p.payload_length != expected) return fail_send(ctx, qp, WcStatus::loc_len_err);
    const SgeList sges = sges_of(ctx, qp, *r);
    if (sges.scatter(offset, p.payload, p.payload_length)) return responded(ctx, qp, p.psn, final);
    const Target to{.sges = &sges, .offset = offset};
    response_waits(ctx, qp, place_slowly(ctx, qp, SlowRole::response, p, to, p.payload, p.payload_length));
}

void receive_atomic_response(Context& ctx, Qp& qp, const wire::Packet& p) {
    SendRecord* r = awaited_record(ctx, qp, p);
    if (r == nullptr) return;
    if (r->kind != WorkKind::atomic) {
        count(ctx, qp, &EventCounters::duplicates);
        return;
    }
    const SgeList sges = sges_of(ctx, qp, *r);
    uint8_t original[8];
    std::memcpy(original, &p.atomic_original, sizeof original);
    if (sges.scatter(0, original, sizeof original)) return responded(ctx, qp, p.psn, true);
    response_waits(ctx, qp, place_original_slowly(ctx, qp, p, sges));
}

}  // namespace

namespace {

/// Handles a response while other responses wait for slow memory or for a missing packet.
void receive_among_others(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (qp.waits_responses) return keep_behind(ctx, qp, SlowRole::response, p);
    execute_response(ctx, qp, p);
    if (qp.keeps_responses) hand_over_responses(ctx, qp);
}

}  // namespace

void receive_response(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (qp.keeps_responses | qp.waits_responses) [[unlikely]]
        return receive_among_others(ctx, qp, p);
    execute_response(ctx, qp, p);
}

void finish_response(Context& ctx, Qp& qp, const wire::Packet& p, bool good) {
    if (qp.state != State::rts && qp.state != State::sqd) return;
    if (!good) return fail_send(ctx, qp, WcStatus::loc_prot_err);
    const SendRecord* r = qp.requester.queue.oldest();
    assert(r != nullptr);  // the record stays in the queue until its response is executed
    responded(ctx, qp, p.psn, psn_span(r->first_psn, p.psn) + 1 == r->packets);
}

void execute_response(Context& ctx, Qp& qp, const wire::Packet& p, bool kept) {
    ROCI_STAGE(completer);
    Requester& rq = qp.requester;
    if (qp.state != State::rts && qp.state != State::sqd) {
        count(ctx, qp, &EventCounters::dropped);
        return;
    }
    // A response may only carry a PSN that was sent and is not acknowledged (C9-157). Any other response or NAK is not
    // executed. Such a packet may still show that the peer answers, or carry new credits.
    if (!rq.window.may_answer(p.psn)) {
        count(ctx, qp, &EventCounters::duplicates);
        if (qp.reorder != nullptr) note_repeated(ctx, qp.reorder->responses, p.psn);
        if (p.info->has(wire::kRead) && rq.window.acked().distance_from(p.psn) > 0) still_answered(ctx, qp);
        if (p.psn + 1 == rq.window.acked() && p.info->has(wire::kAck) && aeth_kind(p.syndrome) == AethKind::ack) {
            learn_credits(qp, p);  // a repeated ACK may carry new credits
            go_on(ctx, qp);
        }
        return;
    }
    if (p.info->has(wire::kRead)) return receive_read_response(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return receive_atomic_response(ctx, qp, p);
    switch (aeth_kind(p.syndrome)) {
        case AethKind::ack:
            return receive_ack(ctx, qp, p);
        case AethKind::nak:
            return receive_nak(ctx, qp, p, kept);
        case AethKind::rnr_nak:
            return receive_rnr_nak(ctx, qp, p);
        case AethKind::reserved:
            count(ctx, qp, &EventCounters::dropped);
            return;
    }
}

}  // namespace roci::qp
