// Sends the packets of the responder: READ and atomic responses, ACKs and NAKs, loss reports, and congestion notifications.
// Responses, ACKs and NAKs are sent in PSN order, so no ACK overtakes a response (IBA 9.7.5.1.2). One ACK covers all requests
// of a burst.
#include <cstring>

#include "mem/memory_region.hpp"
#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

/// Returns the syndrome of an ACK. The ACK carries credits only if the QP uses no SRQ (IBA 9.7.7.2).
uint8_t ack_syndrome(Qp& qp) {
    const bool shared = qp.spec.srq != nullptr || qp.spec.type == Type::xrc_recv;
    const uint8_t credits = shared ? kNoCredits : credit_code(recv_credits(qp));
    return make_syndrome(AethKind::ack, credits);
}

/// The result of sending one packet. `no_room`: the port accepts no frame. `lost`: the memory of the packet's payload cannot be
/// read. `waits`: the payload is being fetched from slow memory.
enum class Sent : uint8_t { yes, no_room, lost, waits };

/// Adds the payload and the ICRC behind the headers. Returns the frame's length, or 0 if the memory cannot be read directly.
uint32_t finish(const Qp& qp, uint32_t length, const mem::MemoryRegion* region, uint64_t va, uint8_t* start, uint8_t* payload) {
    if (wire::copies_with_icrc(length)) {
        const mem::InPlace from = mem::in_place(*region, va, length);
        if (from.data != nullptr) {
            const uint32_t bytes = wire::finish_frame_from(start, qp.path, payload, from.data, length);
            return from.intact() ? bytes : 0;
        }
    }
    if (length != 0 && !mem::copy_out(*region, va, reinterpret_cast<std::byte*>(payload), length)) return 0;
    return wire::finish_frame(start, qp.path, payload, length);
}

/// The payload of a READ response.
struct Payload {
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;
    const ResponderJob* job = nullptr;
    uint64_t offset = 0;
    uint32_t length = 0;
};

/// Completes the frame of a response whose payload must be fetched from slow memory (mem/slow_memory.hpp).
Sent finish_slowly(Context& ctx, Qp& qp, const Payload& what, uint8_t* start, uint8_t* payload, uint32_t& bytes) {
    if (what.length == 0) return Sent::lost;
    const Staged staged = stage_answer(ctx, qp, *what.region, *what.job, what.va, what.offset, what.length);
    if (staged.result == Staged::Result::waits) return Sent::waits;
    if (staged.result == Staged::Result::refused) return Sent::lost;
    std::memcpy(payload, staged.bytes, what.length);
    bytes = wire::finish_frame(start, qp.path, payload, what.length);
    return Sent::yes;
}

Sent send(Context& ctx, Qp& qp, wire::TransportHeaders& h, const Payload& what = {}) {
    io::TxFrame* frame = ctx.out(qp).acquire();
    if (frame == nullptr) return Sent::no_room;
    h.dest_qp = qp.dest;
    uint8_t* start = Outbox::place(*frame, wire::header_bytes(qp.path, h.opcode));
    uint8_t* payload = wire::begin_frame(start, qp.path, h, what.length);
    uint32_t bytes = finish(qp, what.length, what.region, what.va, start, payload);
    if (bytes == 0) [[unlikely]] {
        const Sent result = finish_slowly(ctx, qp, what, start, payload, bytes);
        if (result != Sent::yes) return result;
    }
    ctx.out(qp).commit(start, bytes, qp.path.left, qp.spec.qpn.value);
    bump(qp.counters.tx_packets);
    qp.counters.tx_bytes += bytes;
    return Sent::yes;
}

wire::Operation response_operation(const Qp& qp, const ResponderJob& job) {
    using O = wire::Operation;
    const uint32_t packets = response_packets(qp, job);
    if (packets == 1) return O::read_response_only;
    if (job.sent == 0) return O::read_response_first;
    return job.sent + 1 == packets ? O::read_response_last : O::read_response_middle;
}

/// Returns the region of a response's payload, or nullptr. Called for every packet, because the region may have been deregistered
/// since the request was checked. Sets `va` to the address within the region.
const mem::MemoryRegion* still_there(Context& ctx, const Qp& qp, const ResponderJob& job, uint64_t& va, uint32_t length,
                                     mem::WindowUse& use) {
    const mem::MemoryRegion* region = nullptr;
    const mem::Fault f =
        mem::check(ctx.shared->keys, job.rkey, job.pd, qp.spec.qpn.value, va, length, mem::kRemoteRead, region, use);
    return f == mem::Fault::ok ? region : nullptr;
}

/// Called if a response cannot be sent because its memory cannot be read. A requester may already have all responses to a
/// duplicate. If the job answers a duplicate, the function therefore drops only this job. A requester that has not received the
/// responses repeats its request. For any other job, the function drops all jobs, raises QP_ACCESS_ERR and schedules a NAK
/// (remote access error) with the PSN of the response, as if that PSN were the expected PSN.
void abandon(Context& ctx, Qp& qp, const ResponderJob& job) {
    Responder& rs = qp.responder;
    count(ctx, qp, RequestFault::read_memory_gone);
    note_fault(ctx, qp, RequestFault::read_memory_gone);
    if (job.replay) return rs.jobs.drop_oldest();
    rs.sequence.take_back(job.first + job.sent, nak_syndrome(NakCode::remote_access));
    rs.jobs.count = 0;
    raise(ctx, qp, abi::AsyncEvent::qp_access_err);
}

Sent send_read_packet(Context& ctx, Qp& qp, const ResponderJob& job) {
    const uint64_t offset = uint64_t(job.sent) << qp.mtu_shift;
    const uint32_t length = uint32_t(std::min<uint64_t>(qp.mtu, job.length - offset));
    uint64_t va = job.va + offset;
    mem::WindowUse use;
    const mem::MemoryRegion* region = length == 0 ? nullptr : still_there(ctx, qp, job, va, length, use);
    if (length != 0 && region == nullptr) return Sent::lost;
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(service_of(qp.spec.type), response_operation(qp, job));
    h.psn = job.first + job.sent;
    h.syndrome = ack_syndrome(qp);
    h.msn = Msn{job.msn};
    return send(ctx, qp, h, {region, va, &job, offset, length});
}

Sent send_atomic_response(Context& ctx, Qp& qp, const ResponderJob& job) {
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(service_of(qp.spec.type), wire::Operation::atomic_ack);
    h.psn = job.first;
    h.syndrome = ack_syndrome(qp);
    h.msn = Msn{job.msn};
    h.atomic_original = job.va;
    return send(ctx, qp, h);
}

bool send_acknowledge(Context& ctx, Qp& qp, uint8_t syndrome, Psn psn) {
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(service_of(qp.spec.type), wire::Operation::ack);
    h.psn = psn;
    h.syndrome = syndrome;
    h.msn = qp.responder.sequence.msn();
    return send(ctx, qp, h) == Sent::yes;
}

/// Sends a pending NAK, or an ACK of all executed requests. A NAK also acknowledges all requests before its PSN, so no separate
/// ACK is needed.
bool send_ack_or_nak(Context& ctx, Qp& qp) {
    ReceiveSequence& sequence = qp.responder.sequence;
    const bool sent = sequence.nak_due() ? send_acknowledge(ctx, qp, sequence.nak_syndrome(), sequence.expected())
                                         : send_acknowledge(ctx, qp, ack_syndrome(qp), sequence.expected() - 1);
    if (!sent) return false;
    if (sequence.replied()) enter_error(ctx, qp);
    return true;
}

bool owes_report(const Qp& qp) { return qp.keeps_requests && report_due(qp); }

}  // namespace

bool has_responses(const Qp& qp) {
    const Responder& rs = qp.responder;
    if (owes_report(qp)) return true;
    if (rs.jobs.count != 0) return !answer_waits(qp);  // the end of the fetch activates the responder
    return rs.sequence.reply_due();
}

bool owes_only_ack(const Qp& qp) {
    const Responder& rs = qp.responder;
    return rs.sequence.ack_due() && !rs.sequence.nak_due() && rs.jobs.count == 0 && !owes_report(qp);
}

uint32_t send_responses(Context& ctx, Qp& qp, uint32_t quantum) {
    ROCI_STAGE(respond);
    Responder& rs = qp.responder;
    uint32_t sent = 0;
    // A report acknowledges no packet. Therefore the report does not wait for the responses to READs, which may take long.
    if (rs.jobs.count != 0 && owes_report(qp) && send_report(ctx, qp)) ++sent;
    while (sent < quantum && rs.jobs.count != 0) {
        ResponderJob& job = rs.jobs.oldest();
        const Sent result = job.atomic ? send_atomic_response(ctx, qp, job) : send_read_packet(ctx, qp, job);
        if (result == Sent::no_room || result == Sent::waits) return sent;
        if (result == Sent::lost) {
            abandon(ctx, qp, job);
            continue;
        }
        ++sent;
        if (++job.sent == response_packets(qp, job)) rs.jobs.drop_oldest();
    }
    if (sent < quantum && rs.jobs.count == 0 && rs.sequence.reply_due() && send_ack_or_nak(ctx, qp)) ++sent;
    if (sent < quantum && owes_report(qp) && send_report(ctx, qp)) ++sent;
    return sent;
}

bool send_headers(Context& ctx, uint32_t port, const wire::PathTemplate& path, const wire::TransportHeaders& h, uint32_t sender) {
    io::TxFrame* frame = ctx.outbox[port].acquire();
    if (frame == nullptr) return false;
    uint8_t* start = Outbox::place(*frame, wire::header_bytes(path, h.opcode));
    uint8_t* payload = wire::begin_frame(start, path, h, 0);
    const uint32_t bytes = wire::finish_frame(start, path, payload, 0);
    commit_alone(ctx, port, start, bytes, path.left, sender);
    return true;
}

bool send_notification(Context& ctx, Qp& qp) {
    wire::TransportHeaders h;
    h.opcode = wire::kCnpOpcode;
    h.dest_qp = qp.dest;
    return send_headers(ctx, qp.spec.port, qp.path, h, qp.spec.qpn.value);
}

}  // namespace roci::qp
