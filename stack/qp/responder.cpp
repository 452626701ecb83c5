// The responder processes one request packet at a time. It makes the checks of IBA 9.7.4.1 in their order (PSN, opcode sequence,
// allowed opcode, resources, length, R_Key) and then executes the request. Each fault has a row in kFaults.
#include <cstring>
#include <mutex>

#include "mem/memory_region.hpp"
#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

constexpr uint32_t kEventQpFatal = 1, kEventQpReqErr = 2, kEventQpAccessErr = 3, kEventCommEst = 4;

/// What a fault makes: NAK to the peer, status of the receive WQE that was in use, asynchronous event (IBA 9.7.4.1, table
/// 57; 9.9.3.1).
struct FaultRow {
    NakCode nak;
    WcStatus recv_status;
    uint32_t event;
    bool own = false;     ///< of our side (class E): it ends a UC QP as well, where what the peer does wrong is dropped (class D)
    bool silent = false;  ///< no NAK (class J): the peer's retries are exhausted
};
constexpr FaultRow kFaults[] = {
    {NakCode::psn_sequence, WcStatus::success, 0},                          // none
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},  // invalid_succession
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},  // not_allowed
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},  // too_many_reads
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},  // bad_length
    {NakCode::invalid_request, WcStatus::loc_len_err, kEventQpReqErr},      // message_too_long: longer than the receive buffer
    {NakCode::remote_access, WcStatus::loc_access_err, kEventQpAccessErr},  // access (11.6.2: of a WRITE with immediate)
    {NakCode::remote_operational, WcStatus::loc_prot_err, kEventQpFatal, true},   // recv_protection
    {NakCode::remote_operational, WcStatus::loc_qp_op_err, kEventQpFatal, true},  // malformed_recv
    {NakCode::remote_operational, WcStatus::loc_access_err, kEventQpFatal},       // unreachable: the memory went away
    {NakCode::remote_access, WcStatus::rem_inv_req_err, 0, false, true},          // invalidation
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},        // no_right
    {NakCode::invalid_request, WcStatus::rem_inv_req_err, kEventQpReqErr},        // misaligned: IBA 9.4.5
};

void nak(Context& ctx, Qp& qp, uint8_t syndrome, bool fatal) {
    qp.responder.sequence.owe_nak(syndrome, fatal);
    activate_responder(ctx, qp);
}

void fault(Context& ctx, Qp& qp, RequestFault f) {
    const FaultRow& row = kFaults[size_t(f)];
    count(ctx, qp, f);
    const abi::Reason reason = note_fault(ctx, qp, f);
    if (qp.spec.type == Type::uc && !row.own) {  // UC says nothing and waits for the next message (IBA 9.8.2.2)
        qp.responder.in_message = false;
        return;
    }
    if (qp.responder.recv.held) complete_recv(ctx, qp, nullptr, row.recv_status, 0, reason);
    if (row.event != 0) raise(ctx, qp, row.event);
    if (row.silent || qp.spec.type == Type::uc) return enter_error(ctx, qp);
    nak(ctx, qp, nak_syndrome(row.nak), true);
}

/// The RNR NAK keeps ePSN; what follows it is out of sequence and met with silence (IBA 9.7.5.2.8).
void receiver_not_ready(Context& ctx, Qp& qp) {
    count(ctx, qp, &EventCounters::rnr_nak_sent);
    note(ctx, qp, Happening::rnr_nak_sent, qp.responder.sequence.expected());
    nak(ctx, qp, make_syndrome(AethKind::rnr_nak, qp.min_rnr_timer), false);
}

// ---- PSN ------------------------------------------------------------------------------------------------------------

/// A READ that was asked for before is executed again; an atomic is answered from what was kept; anything else was executed, so
/// the ACK is repeated (IBA 9.7.5.1.5, C9-105 …).
void duplicate(Context& ctx, Qp& qp, const wire::Packet& p);

/// True if the packet is the expected one.
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

/// First and Only start a message, so there must be no incomplete one; Middle and Last continue a message of the same kind
/// (IBA 9.7.4.1.3).
bool legal_succession(const Responder& rs, const wire::OpcodeInfo& info) {
    const bool starts = info.has(wire::kFirst | wire::kOnly) || info.has(wire::kRead | wire::kAtomic | wire::kAtomicWrite);
    if (starts) return !rs.in_message;
    return rs.in_message && rs.message_is_write == info.has(wire::kWrite);
}

uint32_t right_needed(const wire::OpcodeInfo& info) {
    if (info.has(wire::kWrite | wire::kAtomicWrite)) return mem::kRemoteWrite;
    if (info.has(wire::kRead)) return mem::kRemoteRead;
    if (info.has(wire::kAtomic)) return mem::kRemoteAtomic;
    return 0;
}

bool supported(const wire::OpcodeInfo& info) {
    return info.has(wire::kSend | wire::kWrite | wire::kRead | wire::kAtomic | wire::kAtomicWrite) && !info.has(wire::kFlushEth);
}

/// The payload of First and Middle is the path MTU, that of Last is not empty, and that of Only at most the path MTU
/// (IBA 9.7.4.1.6).
bool legal_length(const Qp& qp, const wire::Packet& p) {
    if (p.info->has(wire::kRead | wire::kAtomic)) return true;
    if (p.info->has(wire::kFirst | wire::kMiddle)) return p.payload_length == qp.mtu;
    if (p.info->has(wire::kLast)) return p.payload_length >= 1 && p.payload_length <= qp.mtu;
    return p.payload_length <= qp.mtu;
}

// ---- R_Key ----------------------------------------------------------------------------------------------------------

/// The protection domain that a request acts in: the QP's; of an XRC target the SRQ's that the packet names, which must be of its
/// domain (annex A14.2.3). 0: none.
uint32_t domain_of(const Context& ctx, const Qp& qp, const wire::Packet& p) {
    if (qp.spec.type != Type::xrc_recv) return qp.spec.pd;
    const Srq* srq = ctx.shared->srqs.find(p.xrc_srqn);
    return srq != nullptr && srq->spec.xrcd == qp.spec.xrcd ? srq->spec.pd : 0;
}

/// Memory that a request may use, for as long as this lives.
struct Grant {
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;  ///< within the region
    mem::WindowUse use;
};

/// Zero-length requests need no valid R_Key (C9-88).
bool remote_memory(Context& ctx, Qp& qp, const wire::Packet& p, Key key, uint64_t va, uint64_t length, uint32_t right,
                   Grant& grant) {
    if (length == 0) return true;
    grant.va = va;
    const mem::Fault fault = mem::check(ctx.shared->keys, key, domain_of(ctx, qp, p), qp.spec.qpn.value, grant.va, length, right,
                                        grant.region, grant.use);
    if (fault == mem::Fault::ok) [[likely]]
        return true;
    note_access(ctx, qp, key, domain_of(ctx, qp, p), va, length, right, true);
    return false;
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
    count(ctx, qp, &EventCounters::rx_messages);
    if (rs.message_is_write) bump(ctx.device(qp).write_requests);
    // A UC WRITE may find a receive held that a broken SEND left behind: it waits for the next message that takes one
    const bool takes_one = !rs.message_is_write || p.info->has(wire::kImmDt);
    if (rs.recv.held && takes_one) complete_recv(ctx, qp, &p, WcStatus::success, uint32_t(rs.received));
}

RequestFault place_send(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    uint64_t offset = rs.received;
    const uint8_t* payload = p.payload;
    uint32_t length = p.payload_length;
    if (matches_tags(qp) && !place_tagged(qp, p, offset, payload, length)) return RequestFault::none;
    if (offset + length > rs.recv.capacity) return RequestFault::message_too_long;
    const SgeList sges(ctx, rs.recv.pd, {rs.recv.sges.get(), rs.recv.num_sge});
    if (!sges.scatter(offset, payload, length)) return RequestFault::recv_protection;
    return RequestFault::none;
}

RequestFault place_write(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    const bool last = p.info->has(wire::kLast | wire::kOnly);
    // The payload must add up to the RETH's length exactly (IBA 9.7.4.1.6)
    if (p.payload_length > rs.remaining || (last && p.payload_length != rs.remaining)) return RequestFault::bad_length;
    if (!last && p.payload_length == rs.remaining) return RequestFault::bad_length;
    Grant grant;
    if (!remote_memory(ctx, qp, p, rs.rkey, rs.va, p.payload_length, mem::kRemoteWrite, grant)) return RequestFault::access;
    if (grant.region != nullptr &&
        !mem::copy_in(*grant.region, grant.va, reinterpret_cast<const std::byte*>(p.payload), p.payload_length))
        return RequestFault::unreachable;
    rs.va += p.payload_length;
    rs.remaining -= p.payload_length;
    return RequestFault::none;
}

/// The first packet of a SEND, or the last packet of a WRITE with immediate, takes the receive WQE.
TakeRecv take_if_needed(Context& ctx, Qp& qp, const wire::Packet& p) {
    const wire::OpcodeInfo& info = *p.info;
    if (qp.responder.recv.held) return TakeRecv::ok;
    const bool send_starts = info.has(wire::kSend) && info.has(wire::kFirst | wire::kOnly);
    if (send_starts && matches_tags(qp)) return take_tagged(ctx, qp, p);
    const bool write_imm = info.has(wire::kWrite) && info.has(wire::kImmDt);
    return send_starts || write_imm ? take_recv(ctx, qp, &p) : TakeRecv::ok;
}

/// SEND with invalidate: the R_Key is invalid before the program can see the completion (IBA 9.4.1.1.3).
RequestFault invalidate(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (!p.info->has(wire::kIeth)) return RequestFault::none;
    // a peer can invalidate only windows, not a region of ibv_reg_mr (IBA 10.6.5)
    const bool done = mem::invalidate_window(ctx.shared->keys, p.invalidate, domain_of(ctx, qp, p), qp.spec.qpn.value);
    return done ? RequestFault::none : RequestFault::invalidation;
}

RequestFault whole_write_allowed(Context& ctx, Qp& qp, const wire::Packet& p) {
    if (!p.info->has(wire::kReth)) return RequestFault::none;
    if (p.dma_length > kMaxMessage) return RequestFault::bad_length;
    Grant grant;
    return remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteWrite, grant) ? RequestFault::none
                                                                                           : RequestFault::access;
}

void execute_message(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    const TakeRecv taken = take_if_needed(ctx, qp, p);
    if (taken == TakeRecv::empty) {
        if (qp.spec.type != Type::uc) return receiver_not_ready(ctx, qp);
        rs.in_message = false;  // UC: the message is lost
        count(ctx, qp, &EventCounters::dropped);
        return;
    }
    if (taken == TakeRecv::malformed) return fault(ctx, qp, RequestFault::malformed_recv);
    if (taken == TakeRecv::no_queue || taken == TakeRecv::refused) return fault(ctx, qp, RequestFault::not_allowed);
    if (!legal_length(qp, p)) return fault(ctx, qp, RequestFault::bad_length);
    const bool starts = p.info->has(wire::kFirst | wire::kOnly);
    if (starts) {
        if (const RequestFault f = whole_write_allowed(ctx, qp, p); f != RequestFault::none) return fault(ctx, qp, f);
        begin_message(qp, p);
    }
    const RequestFault placed = rs.message_is_write ? place_write(ctx, qp, p) : place_send(ctx, qp, p);
    if (placed != RequestFault::none) return fault(ctx, qp, placed);
    if (const RequestFault f = invalidate(ctx, qp, p); f != RequestFault::none) return fault(ctx, qp, f);
    rs.received += p.payload_length;
    rs.sequence.executed();
    if (p.info->has(wire::kLast | wire::kOnly)) end_message(ctx, qp, p);
}

// ---- READ and atomics -----------------------------------------------------------------------------------------------

ResponderJob read_job(const Context& ctx, const Qp& qp, const wire::Packet& p) {
    ResponderJob job;
    job.first = p.psn;
    job.va = p.va;
    job.length = p.dma_length;
    job.rkey = p.rkey;
    job.pd = domain_of(ctx, qp, p);
    job.msn = qp.responder.sequence.msn().value & kMask24;
    return job;
}

/// READs and atomics that are being answered for the first time.
uint32_t new_jobs(Responder& rs) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < rs.jobs.count; ++i) n += !rs.jobs.at(i).replay;
    return n;
}

void queue_job(Context& ctx, Qp& qp, const ResponderJob& job) {
    JobRing& jobs = qp.responder.jobs;
    jobs.at(jobs.count++) = job;
    activate_responder(ctx, qp);
}

void execute_read(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.dma_length > kMaxMessage) return fault(ctx, qp, RequestFault::bad_length);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteRead, grant))
        return fault(ctx, qp, RequestFault::access);
    rs.sequence.end_message();
    count(ctx, qp, &EventCounters::rx_messages);
    bump(ctx.device(qp).read_requests);
    const ResponderJob job = read_job(ctx, qp, p);
    rs.sequence.executed(response_packets(qp, job));
    queue_job(ctx, qp, job);
}

/// The 8 bytes are exchanged at once where they are mapped; else by copy (then only our own engine is atomic towards them).
bool exchange(const mem::MemoryRegion& region, uint64_t va, const wire::Packet& p, uint64_t& original) {
    const bool swap = wire::operation_of(p.opcode) == wire::Operation::cmp_swap;
    std::byte* direct = mem::direct(region, va, 8);
    if (direct != nullptr) {
        std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(direct));
        if (!swap) {
            original = word.fetch_add(p.swap_add);
            return true;
        }
        original = p.compare;
        word.compare_exchange_strong(original, p.swap_add);
        return true;
    }
    // Two engines may serve requests for the same place; the lock makes them one after the other.
    static std::mutex slow;
    const std::lock_guard guard(slow);
    std::byte bytes[8];
    if (!mem::copy_out(region, va, bytes, 8)) return false;
    std::memcpy(&original, bytes, 8);
    const uint64_t changed = swap ? (original == p.compare ? p.swap_add : original) : original + p.swap_add;
    std::memcpy(bytes, &changed, 8);
    return mem::copy_in(region, va, bytes, 8);
}

ResponderJob atomic_job(Psn psn, uint64_t original, Msn msn) {
    ResponderJob job;
    job.first = psn;
    job.atomic = true;
    job.va = original;
    job.msn = msn.value & kMask24;
    return job;
}

void execute_atomic(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.va % 8 != 0) return fault(ctx, qp, RequestFault::misaligned);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, 8, mem::kRemoteAtomic, grant)) return fault(ctx, qp, RequestFault::access);
    uint64_t original = 0;
    if (!exchange(*grant.region, grant.va, p, original)) return fault(ctx, qp, RequestFault::unreachable);
    rs.sequence.end_message();
    rs.sequence.executed();
    count(ctx, qp, &EventCounters::rx_messages);
    bump(ctx.device(qp).atomic_requests);
    rs.atomics.slots[rs.atomics.next] = {original, p.psn, rs.sequence.msn()};
    rs.atomics.next = (rs.atomics.next + 1) % rs.atomics.size;
    queue_job(ctx, qp, atomic_job(p.psn, original, rs.sequence.msn()));
}

/// An ATOMIC WRITE is answered by an empty READ response.
ResponderJob atomic_write_job(const Qp& qp, Psn psn) {
    ResponderJob job;
    job.first = psn;
    job.msn = qp.responder.sequence.msn().value & kMask24;
    return job;
}

bool store(const mem::MemoryRegion& region, uint64_t va, const uint8_t* bytes) {
    std::byte* direct = mem::direct(region, va, kAtomicWriteBytes);
    if (direct == nullptr) return mem::copy_in(region, va, reinterpret_cast<const std::byte*>(bytes), kAtomicWriteBytes);
    uint64_t value;
    std::memcpy(&value, bytes, sizeof value);
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(direct)).store(value);
    return true;
}

void execute_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    if (new_jobs(rs) >= qp.max_dest_rd_atomic) return fault(ctx, qp, RequestFault::too_many_reads);
    if (p.payload_length != kAtomicWriteBytes || p.dma_length != kAtomicWriteBytes)
        return fault(ctx, qp, RequestFault::bad_length);
    if (p.va % kAtomicWriteBytes != 0) return fault(ctx, qp, RequestFault::misaligned);
    Grant grant;
    if (!remote_memory(ctx, qp, p, p.rkey, p.va, kAtomicWriteBytes, mem::kRemoteWrite, grant))
        return fault(ctx, qp, RequestFault::access);
    if (!store(*grant.region, grant.va, p.payload)) return fault(ctx, qp, RequestFault::unreachable);
    rs.sequence.end_message();
    rs.sequence.executed();
    count(ctx, qp, &EventCounters::rx_messages);
    bump(ctx.device(qp).atomic_requests);
    queue_job(ctx, qp, atomic_write_job(qp, p.psn));
}

void duplicate_read(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    Grant grant;
    const ResponderJob job = read_job(ctx, qp, p);
    // All of it must lie before ePSN, else it is not a repetition but a new request with an old PSN.
    if (p.dma_length > kMaxMessage || (job.first + response_packets(qp, job)).distance_from(rs.sequence.expected()) > 0) return;
    if (!(qp.access & mem::kRemoteRead) || !remote_memory(ctx, qp, p, p.rkey, p.va, p.dma_length, mem::kRemoteRead, grant))
        return;
    answer_again(ctx, qp, job);
}

void duplicate_atomic(Context& ctx, Qp& qp, const wire::Packet& p) {
    Responder& rs = qp.responder;
    for (const AtomicResult& kept : std::span(rs.atomics.slots.get(), rs.atomics.size)) {
        if (kept.valid() && kept.psn == p.psn) return answer_again(ctx, qp, atomic_job(kept.psn, kept.original, kept.msn));
    }
}

/// It was executed when it came first; what was written there later must stay.
void duplicate_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p) { answer_again(ctx, qp, atomic_write_job(qp, p.psn)); }

void duplicate(Context& ctx, Qp& qp, const wire::Packet& p) {
    count(ctx, qp, &EventCounters::duplicates);
    bump(ctx.device(qp).duplicate_requests);
    if (p.info->has(wire::kRead)) return duplicate_read(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return duplicate_atomic(ctx, qp, p);
    if (p.info->has(wire::kAtomicWrite)) return duplicate_atomic_write(ctx, qp, p);
    qp.responder.sequence.owe_ack();
    activate_responder(ctx, qp);
}

/// UC has no NAK: a gap in the PSNs breaks the message under way; the next First or Only starts anew (IBA 9.8.2.2.2).
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

void establish(Context& ctx, Qp& qp) {
    if (qp.established) return;
    qp.established = true;
    if (qp.state == State::rtr) raise(ctx, qp, kEventCommEst);
}

}  // namespace

void nak_gap(Context& ctx, Qp& qp) {
    if (qp.responder.sequence.missing()) return;
    count(ctx, qp, &EventCounters::seq_nak_sent);
    note(ctx, qp, Happening::seq_nak_sent, qp.responder.sequence.expected());
    nak(ctx, qp, nak_syndrome(NakCode::psn_sequence), false);
}

void receive_request(Context& ctx, Qp& qp, const wire::Packet& p) {
    execute_request(ctx, qp, p);
    if (qp.keeps_requests) [[unlikely]]
        hand_over_requests(ctx, qp);
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
    rs.sequence.arrived();
    if (!legal_succession(rs, *p.info)) return fault(ctx, qp, RequestFault::invalid_succession);
    const uint32_t right = right_needed(*p.info);
    if (!supported(*p.info)) return fault(ctx, qp, RequestFault::not_allowed);
    if ((qp.access & right) != right) return fault(ctx, qp, RequestFault::no_right);
    // READs and atomics are acknowledged by their response, whatever the AckReq bit says (IBA 9.7.5.1.2)
    const bool answers_itself = p.info->has(wire::kRead | wire::kAtomic | wire::kAtomicWrite);
    // UC has no acknowledgements: what asks for one all the same gets none (IBA 9.8.1)
    if (p.ack_request && !answers_itself && !unacknowledged(qp.spec.type)) {
        rs.sequence.owe_ack();
        activate_responder(ctx, qp);
    }
    if (p.info->has(wire::kRead)) return execute_read(ctx, qp, p);
    if (p.info->has(wire::kAtomic)) return execute_atomic(ctx, qp, p);
    if (p.info->has(wire::kAtomicWrite)) return execute_atomic_write(ctx, qp, p);
    execute_message(ctx, qp, p);
    if (qp.spec.type == Type::uc && rs.sequence.expected() == p.psn) rs.sequence.executed();
}

}  // namespace roci::qp
