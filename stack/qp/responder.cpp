// The responder processes one request packet at a time. It performs the checks of IBA 9.7.4.1 in their order (PSN, opcode
// sequence, allowed opcode, resources, length and R_Key) and then executes the request. kFaults has a row for each fault that
// fault() handles.
#include <cassert>
#include <cstring>
#include <optional>

#include "mem/memory_region.hpp"
#include "qp/receive_source.hpp"
#include "qp/reorder.hpp"
#include "qp/requests.hpp"

namespace roci::qp {
namespace {

using abi::AsyncEvent;
using abi::WcStatus;

/// The effects of a fault: NAK to the peer, status of the receive WQE in use, asynchronous event (IBA 9.7.4.1, table 57;
/// 9.9.3.1).
struct FaultRow {
    NakCode nak;
    WcStatus recv_status;
    std::optional<AsyncEvent> event;
    bool own = false;     ///< local fault (class E): ends a UC QP too. On UC, any other fault (class D) only drops the message
    bool silent = false;  ///< the responder sends no NAK (class J), so the peer fails when its retries are exhausted
};
constexpr FaultRow kFaults[] = {
    {NakCode::psn_sequence, WcStatus::success, {}},                                 // none
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},  // invalid_succession
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},  // not_allowed
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},  // too_many_reads
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},  // bad_length
    {NakCode::invalid_request, WcStatus::loc_len_err,
     AsyncEvent::qp_req_err},  // message_too_long: longer than the receive buffer
    {NakCode::remote_access, WcStatus::loc_access_err, AsyncEvent::qp_access_err},  // access; the status is for WRITE_WITH_IMM
    {NakCode::remote_operational, WcStatus::loc_prot_err, AsyncEvent::qp_fatal, true},   // recv_protection
    {NakCode::remote_operational, WcStatus::loc_qp_op_err, AsyncEvent::qp_fatal, true},  // malformed_recv
    {NakCode::remote_operational, WcStatus::loc_access_err, AsyncEvent::qp_fatal},       // unreachable: the memory is gone
    {NakCode::remote_access, WcStatus::rem_inv_req_err, {}, false, true},                // invalidation
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},       // no_right
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},       // misaligned: IBA 9.4.5
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, AsyncEvent::qp_req_err},       // bad_flush
};

void nak(Context& ctx, Qp& qp, uint8_t syndrome, bool fatal) {
    qp.responder.sequence.owe_nak(syndrome, fatal);
    activate_responder(ctx, qp);
}

}  // namespace

void fault(Context& ctx, Qp& qp, RequestFault f) {
    const FaultRow& row = kFaults[size_t(f)];
    count(ctx, qp, f);
    const abi::Reason reason = note_fault(ctx, qp, f);
    if (qp.spec.type == Type::uc && !row.own) {  // UC sends no NAK and waits for the next message (IBA 9.8.2.2)
        qp.responder.in_message = false;
        return;
    }
    if (qp.responder.recv.held) complete_recv(ctx, qp, nullptr, row.recv_status, 0, reason);
    if (row.event) raise(ctx, qp, *row.event);
    if (row.silent || qp.spec.type == Type::uc) return enter_error(ctx, qp);
    nak(ctx, qp, nak_syndrome(row.nak), true);
}

/// Returns the protection domain of a request. For an XRC target, this is the PD of the SRQ that the packet names, or 0 if this
/// SRQ does not belong to the target's XRC domain (annex A14.2.3). For any other QP, this is the PD of the QP.
uint32_t domain_of(const Context& ctx, const Qp& qp, const wire::Packet& p) {
    if (qp.spec.type != Type::xrc_recv) return qp.spec.pd;
    const Srq* srq = ctx.shared->srqs.find(p.xrc_srqn);
    return srq != nullptr && srq->spec.xrcd == qp.spec.xrcd ? srq->spec.pd : 0;
}

/// Checks whether the peer may access the memory. If so, fills in `grant` and returns true. Requests of length zero need no
/// valid R_Key (C9-88), and `grant` stays empty for them. Records the reason of a refusal in the journal.
bool remote_memory(Context& ctx, Qp& qp, const wire::Packet& p, Key key, uint64_t va, uint64_t length, uint32_t right,
                   Grant& grant) {
    if (length == 0) return true;
    grant.va = va;
    const mem::Fault fault = mem::check(ctx.shared->keys, key, domain_of(ctx, qp, p), qp.spec.qpn.value, grant.va, length, right,
                                        grant.region, grant.use);
    if (fault == mem::Fault::ok) [[likely]]
        return true;
    note_access(ctx, qp, {fault, key.value, domain_of(ctx, qp, p), right, va, length}, true);
    return false;
}

namespace {

/// Schedules an RNR NAK. The expected PSN stays the same. Therefore later packets are out of sequence and are silently dropped
/// (IBA 9.7.5.2.8).
void receiver_not_ready(Context& ctx, Qp& qp) {
    count(ctx, qp, &EventCounters::rnr_nak_sent);
    note(ctx, qp, Happening::rnr_nak_sent, qp.responder.sequence.expected());
    nak(ctx, qp, make_syndrome(AethKind::rnr_nak, qp.min_rnr_timer), false);
}

// ---- PSN ------------------------------------------------------------------------------------------------------------

/// Returns true if the packet has the expected PSN. Otherwise handles the packet as a duplicate or as a packet that arrives too
/// early.
bool check_psn(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    const int32_t distance = p.psn.distance_from(rs.sequence.expected());
    if (distance == 0) return true;
    if (distance < 0) {
        if (qp.reorder != nullptr) note_repeated(ctx, qp.reorder->requests, p.psn);
        duplicate(ctx, qp, p);
        return false;
    }
    count(ctx, qp, &EventCounters::out_of_order);
    if (!keep_request(ctx, qp, p)) nak_gap(ctx, qp);
    return false;
}

/// Checks the order of opcodes (IBA 9.7.4.1.3). First, Only, READ and atomics must not arrive within a message. Middle and Last
/// must continue a message of the same kind.
bool legal_succession(const Responder& rs, const wire::OpcodeInfo& info) {
    const bool starts = info.has(wire::kFirst | wire::kOnly) || info.has(wire::kRead | wire::kAtomic | wire::kAtomicWrite);
    if (starts) return !rs.in_message;
    return rs.in_message && rs.message_is_write == info.has(wire::kWrite);
}

uint32_t right_needed(const wire::Packet& p) {
    const wire::OpcodeInfo& info = *p.info;
    if (info.has(wire::kWrite | wire::kAtomicWrite)) return mem::kRemoteWrite;
    if (info.has(wire::kRead)) return mem::kRemoteRead;
    if (info.has(wire::kAtomic)) return mem::kRemoteAtomic;
    if (info.has(wire::kFlushEth)) return flush_rights(p.flush);
    return 0;
}

/// Checks the payload length (IBA 9.7.4.1.6). The length must equal the path MTU for First and Middle. The length must not
/// exceed the path MTU for Last and Only, and must not be zero for Last.
bool legal_length(const Qp& qp, const wire::Packet& p) {
    if (p.info->has(wire::kRead | wire::kAtomic)) return true;
    if (p.info->has(wire::kFirst | wire::kMiddle)) return p.payload_length == qp.mtu;
    if (p.info->has(wire::kLast)) return p.payload_length >= 1 && p.payload_length <= qp.mtu;
    return p.payload_length <= qp.mtu;
}

// ---- SEND and WRITE -------------------------------------------------------------------------------------------------

void begin_message(Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    rs.in_message = true;
    rs.message_is_write = p.info->has(wire::kWrite);
    rs.received = 0;
    if (!rs.message_is_write) return;
    rs.va = p.va;
    rs.remaining = p.dma_length;
    rs.rkey = p.rkey;
}

void end_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    rs.in_message = false;
    rs.sequence.end_message();
    count_executed(ctx, qp, Executed(rs.message_is_write));
    // On UC, the receive of an incomplete SEND stays in use. A WRITE without immediate does not complete that receive; the next
    // message that needs a receive uses that receive.
    const bool takes_one = !rs.message_is_write || p.info->has(wire::kImmDt);
    if (rs.recv.held && takes_one) complete_recv(ctx, qp, &p, WcStatus::success, uint32_t(rs.received));
}

Placed place_send(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    Part part{rs.received, p.payload, p.payload_length};
    if (!locate(qp, p, part)) return {RequestFault::none};
    if (part.offset + part.length > rs.recv.capacity) return {RequestFault::message_too_long};
    const SgeList sges(ctx, rs.recv.pd, {rs.recv.sges.get(), rs.recv.num_sge});
    if (sges.scatter(part.offset, part.payload, part.length)) return {RequestFault::none};
    const Target to{.sges = &sges, .offset = part.offset};
    return {RequestFault::recv_protection, place_slowly(ctx, qp, SlowRole::request, p, to, part.payload, part.length)};
}

/// Stores the payload of a WRITE's packet. If `grant` is empty, first checks that the peer may access the packet's range.
/// Otherwise `grant` already permits the access.
Placed place_write(Context& ctx, Qp& qp, const wire::Packet& p, Grant& grant) {
    Responder& rs = qp.responder;
    const bool last = p.info->has(wire::kLast | wire::kOnly);
    // The sum of the payload lengths must equal the length in the RETH (IBA 9.7.4.1.6).
    if (p.payload_length > rs.remaining || (last && p.payload_length != rs.remaining)) return {RequestFault::bad_length};
    if (!last && p.payload_length == rs.remaining) return {RequestFault::bad_length};
    if (grant.region == nullptr && !remote_memory(ctx, qp, p, rs.rkey, rs.va, p.payload_length, mem::kRemoteWrite, grant))
        return {RequestFault::access};
    if (grant.region == nullptr) return {RequestFault::none};
    if (mem::copy_in(*grant.region, grant.va, reinterpret_cast<const std::byte*>(p.payload), p.payload_length))
        return {RequestFault::none};
    return {RequestFault::unreachable, place_slowly(ctx, qp, SlowRole::request, p, grant.target(), p.payload, p.payload_length)};
}

/// Takes a receive WQE for the first packet of a SEND or the last packet of a WRITE with immediate, unless the QP already holds
/// a receive WQE.
TakeRecv take_if_needed(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (qp.responder.recv.held || !p.info->has(wire::kConsumesRecv)) return TakeRecv::ok;
    return p.info->has(wire::kSend) ? take_message(ctx, qp, p) : take_recv(ctx, qp, &p);
}

/// Invalidates the R_Key of a SEND with invalidate. The R_Key must be invalid before the program can see the completion (IBA
/// 9.4.1.1.3).
RequestFault invalidate(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (!p.info->has(wire::kIeth)) return RequestFault::none;
    // a peer can invalidate only windows, not a region of ibv_reg_mr (IBA 10.6.5)
    const bool done = mem::invalidate_window(ctx.shared->keys, p.invalidate, domain_of(ctx, qp, p), qp.spec.qpn.value);
    return done ? RequestFault::none : RequestFault::invalidation;
}

/// Checks the length and the memory of a whole WRITE. Fills in `grant`.
RequestFault whole_write_allowed(Context& ctx, Qp& qp, const wire::Packet& p, Grant& grant) {
    if (!p.info->has(wire::kReth)) return RequestFault::none;
    if (p.dma_length > kMaxMessage) return RequestFault::bad_length;
    return remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteWrite, grant) ? RequestFault::none
                                                                                           : RequestFault::access;
}

/// Schedules an ACK if the packet of a SEND or WRITE requests an ACK. UC has no acknowledgements and ignores the AckReq bit
/// (IBA 9.8.1). This function is not called for READs and atomics, because their responses acknowledge them (IBA 9.7.5.1.2).
void acknowledge_if_asked(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (!p.ack_request || unacknowledged(qp.spec.type)) return;
    qp.responder.sequence.owe_ack();
    activate_responder(ctx, qp);
}

/// Called when the payload of a packet of a SEND or WRITE is in memory. Completes the processing of the packet.
void finish_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (const RequestFault f = invalidate(ctx, qp, p); f != RequestFault::none) return fault(ctx, qp, f);
    if (rs.message_is_write) {
        rs.va += p.payload_length;
        rs.remaining -= p.payload_length;
    }
    rs.received += p.payload_length;
    rs.sequence.executed();
    acknowledge_if_asked(ctx, qp, p);
    if (p.info->has(wire::kLast | wire::kOnly)) end_message(ctx, qp, p);
}

/// Takes the receive WQE that the packet needs, if any. Returns false if the packet cannot be executed now. In this case
/// handles the reason, for example schedules an RNR NAK.
bool ready_to_receive(Context& ctx, Qp& qp, const wire::Packet& p) {
    switch (take_if_needed(ctx, qp, p)) {
        case TakeRecv::ok:
        case TakeRecv::too_short:
            return true;
        case TakeRecv::waits:
        case TakeRecv::lost:
            return false;
        case TakeRecv::empty:
            if (qp.spec.type != Type::uc) return receiver_not_ready(ctx, qp), false;
            qp.responder.in_message = false;  // UC drops the message
            count(ctx, qp, &EventCounters::dropped);
            return false;
        case TakeRecv::malformed:
            return fault(ctx, qp, RequestFault::malformed_recv), false;
        case TakeRecv::no_queue:
        case TakeRecv::refused:
            break;
    }
    return fault(ctx, qp, RequestFault::not_allowed), false;
}

/// Stores the payload of a packet. If the packet starts a message, first checks the message. The range of a WRITE's first packet
/// needs no separate check, because that range is a part of the whole WRITE's range.
Placed place(Context& ctx, Qp& qp, const wire::Packet& p, bool starts) {
    Grant grant;
    if (starts) {
        if (const RequestFault f = whole_write_allowed(ctx, qp, p, grant); f != RequestFault::none) return {f};
        begin_message(qp, p);
    }
    return qp.responder.message_is_write ? place_write(ctx, qp, p, grant) : place_send(ctx, qp, p);
}

void execute_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (!ready_to_receive(ctx, qp, p)) return;
    if (!legal_length(qp, p)) return fault(ctx, qp, RequestFault::bad_length);
    const bool starts = p.info->has(wire::kFirst | wire::kOnly);
    const Placed placed = place(ctx, qp, p, starts);
    if (placed.fault == RequestFault::none) return finish_message(ctx, qp, p);
    if (placed.later == Placing::lost && starts) rs.in_message = false;
    if (placed.later == Placing::refused) fault(ctx, qp, placed.fault);
}

/// Accepts any PSN, because UC sends no NAKs. A gap in the PSNs drops the current message, and the next First or Only starts a
/// new message (IBA 9.8.2.2.2). Returns false if the packet is dropped.
bool uc_resynchronise(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    const bool starts = p.info->has(wire::kFirst | wire::kOnly);
    if (p.psn != rs.sequence.expected() || (starts && rs.in_message)) {
        rs.in_message = false;
        count(ctx, qp, &EventCounters::out_of_order);
    }
    rs.sequence.pass_over(p.psn);
    if (starts || rs.in_message) return true;
    rs.sequence.executed();
    count(ctx, qp, &EventCounters::dropped);
    return false;
}

bool in_sequence(Context& ctx, Qp& qp, const wire::Packet& p) {
    return qp.spec.type == Type::uc ? uc_resynchronise(ctx, qp, p) : check_psn(ctx, qp, p);
}

/// On UC, advances the expected PSN past a packet that had no effect.
void pass_refused(Qp& qp, const wire::Packet& p) {
    ReceiveSequence& sequence = qp.responder.sequence;
    if (qp.spec.type == Type::uc && sequence.expected() == p.psn && !qp.waits_requests) sequence.executed();
}

void fault_of_memory(Context& ctx, Qp& qp, const wire::Packet& p) {
    fault(ctx, qp, p.info->has(wire::kSend) ? RequestFault::recv_protection : RequestFault::unreachable);
    pass_refused(qp, p);
}

/// Handles a request while other requests wait for slow memory (mem/slow_memory.hpp) or for a missing packet.
void receive_among_others(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (qp.waits_requests) return keep_behind(ctx, qp, SlowRole::request, p);
    execute_request(ctx, qp, p);
    if (qp.keeps_requests) hand_over_requests(ctx, qp);
}

void establish(Context& ctx, Qp& qp) {
    if (qp.established) return;
    qp.established = true;
    if (qp.state == State::rtr) raise(ctx, qp, AsyncEvent::comm_est);
}

}  // namespace

void nak_gap(Context& ctx, Qp& qp) {
    if (qp.responder.sequence.missing()) return;
    loss_detected(ctx, qp);
    count(ctx, qp, &EventCounters::seq_nak_sent);
    note(ctx, qp, Happening::seq_nak_sent, qp.responder.sequence.expected());
    nak(ctx, qp, nak_syndrome(NakCode::psn_sequence), false);
}

void receive_request(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (qp.keeps_requests | qp.waits_requests) [[unlikely]]
        return receive_among_others(ctx, qp, p);
    execute_request(ctx, qp, p);
}

void execute_request(Context& ctx, Qp& qp, const wire::Packet& p) {
    ROCI_STAGE(responder);
    Responder& rs = qp.responder;
    const bool receiving = qp.state == State::rtr || qp.state == State::rts || qp.state == State::sqd || qp.state == State::sqe;
    if (!receiving || rs.sequence.refused()) {
        count(ctx, qp, &EventCounters::dropped);
        return;
    }
    establish(ctx, qp);
    if (!in_sequence(ctx, qp, p)) return;
    assert(!p.unchecked);
    rs.sequence.arrived();
    if (!legal_succession(rs, *p.info)) return fault(ctx, qp, RequestFault::invalid_succession);
    const uint32_t right = right_needed(p);
    if ((qp.access & right) != right) return fault(ctx, qp, RequestFault::no_right);
    if (p.info->has(wire::kRead)) return execute_read(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return execute_atomic(ctx, qp, p);
    if (p.info->has(wire::kAtomicWrite)) return execute_atomic_write(ctx, qp, p);
    if (p.info->has(wire::kFlushEth)) return execute_flush(ctx, qp, p);
    execute_message(ctx, qp, p);
    pass_refused(qp, p);
}

void finish_request(Context& ctx, Qp& qp, const wire::Packet& p, bool good, uint64_t original) {
    if (qp.spec.type == Type::ud) return finish_datagram(ctx, qp, p, good);
    if (finish_handed(ctx, qp, p, good)) {
        begin_message(qp, p);
        return finish_message(ctx, qp, p);
    }
    if (!good) return fault_of_memory(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return finish_atomic(ctx, qp, p, original);
    if (p.info->has(wire::kAtomicWrite)) return finish_atomic_write(ctx, qp, p);
    finish_message(ctx, qp, p);
    pass_refused(qp, p);
}

}  // namespace roci::qp
