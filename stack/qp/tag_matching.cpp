// Handles messages to a QP of a tag matching SRQ, and a client's operations on the SRQ's list. The rules are defined by
// rdma-core's Documentation/tag_matching.md and ibv_post_srq_ops(3).
#include "qp/tag_matching.hpp"

#include <cstring>

#include "base/bytes.hpp"
#include "qp/receive_source.hpp"

namespace roci::qp {
namespace {

using abi::WcOpcode;
using abi::WcStatus;

/// Limit of unexpected messages that the client has not yet reported as handled. Above this limit, completions carry the flag
/// IBV_WC_TM_SYNC_REQ, which requests a report.
constexpr uint32_t kMaxLag = 1u << 14;

bool in_phase(const TagSrq& t) { return t.handled == t.unexpected; }

void give_back(TagSrq& t, uint32_t handle) {
    std::atomic_ref(t.spec.given_back[t.returned++ & (t.spec.handles - 1)]).store(handle, std::memory_order_relaxed);
    std::atomic_ref(t.spec.shared->returned).store(t.returned, std::memory_order_release);
}

void leave_list(TagSrq& t, TagEntry& entry) {
    t.list.remove(entry);
    give_back(t, entry.handle);
}

abi::Cqe match_completion(const TagQp& m, const TagEntry& entry, uint32_t length) {
    abi::Cqe e{};
    e.wr_id = entry.recv_wr_id;
    e.opcode = WcOpcode::tm_recv;
    e.wc_flags = abi::kWcTmMatch;
    e.byte_len = length;
    e.tag = m.tag;
    e.src_qp = m.app_ctx;
    return e;
}

// ---- messages -------------------------------------------------------------------------------------------------------

/// Takes the SRQ's next ordinary receive for the message. The header of the message is stored too.
TakeRecv take_ordinary(Context& ctx, Qp& qp, const wire::Packet& p, TagMessage kind) {
    const TakeRecv taken = take_recv(ctx, qp, &p);
    if (taken != TakeRecv::ok) return taken;
    qp.tags->message = kind;
    if (kind == TagMessage::unexpected) ++qp.spec.srq->tags->unexpected;
    return taken;
}

/// Uses the buffers of the entry as the receive buffers of the message. Reports the match at once if the message has several
/// packets.
TakeRecv take_eager(Context& ctx, Qp& qp, TagEntry& entry, const wire::Packet& p) {
    TagQp& m = *qp.tags;
    RecvWork& work = qp.responder.recv;
    work.held = true;
    work.srq = qp.spec.srq;
    work.pd = qp.spec.srq->spec.pd;
    work.wr_id = entry.recv_wr_id;
    work.num_sge = entry.num_sge;
    work.capacity = entry.capacity;
    std::copy_n(entry.sges.begin(), entry.num_sge, work.sges.get());
    m.message = TagMessage::matched;
    m.match_reported = !p.info->has(wire::kOnly);
    abi::Cqe e = match_completion(m, entry, 0);
    leave_list(*qp.spec.srq->tags, entry);
    if (m.match_reported) complete_tag(ctx, *qp.spec.srq, &qp, e, false);
    return TakeRecv::ok;
}

void complete_handed(Context& ctx, Qp& qp, abi::Cqe& e, WcStatus status, bool solicited) {
    e.status = status;
    e.vendor_err = uint32_t(status);
    complete_tag(ctx, *qp.spec.srq, &qp, e, solicited);
}

/// Stores the headers of a rendezvous request in the matched buffer, so that the client fetches the data. Called when rocid
/// cannot fetch the data.
TakeRecv hand_to_client(Context& ctx, Qp& qp, TagEntry& entry, const wire::Packet& p, uint32_t length) {
    TagQp& m = *qp.tags;
    const SgeList sges(ctx, qp.spec.srq->spec.pd, {entry.sges.data(), entry.num_sge});
    const auto bytes = uint32_t(std::min<uint64_t>(kRndvBytes, entry.capacity));
    const bool placed = sges.scatter(0, p.payload, bytes);
    const Placing later =
        placed ? Placing::refused : place_slowly(ctx, qp, SlowRole::request, p, {.sges = &sges}, p.payload, bytes);
    if (later == Placing::lost) return TakeRecv::lost;
    m.handed = match_completion(m, entry, length);
    leave_list(*qp.spec.srq->tags, entry);
    if (later == Placing::waits) {
        m.message = TagMessage::handed;
        return TakeRecv::waits;
    }
    complete_handed(ctx, qp, m.handed, placed ? WcStatus::tm_rndv_incomplete : WcStatus::loc_prot_err, p.solicited);
    return TakeRecv::ok;
}

TakeRecv take_rendezvous(Context& ctx, Qp& qp, TagEntry& entry, const wire::Packet& p) {
    TagQp& m = *qp.tags;
    const uint32_t length = load_be<uint32_t>(p.payload + kTmhBytes + 12);
    m.message = TagMessage::rendezvous;
    if (length > entry.capacity || length > kMaxMessage || qp.max_rd_atomic == 0)
        return hand_to_client(ctx, qp, entry, p, length);
    if (m.free.count == 0) return TakeRecv::empty;
    begin_rendezvous(ctx, qp, entry, p);
    abi::Cqe e = match_completion(m, entry, length);
    leave_list(*qp.spec.srq->tags, entry);
    complete_tag(ctx, *qp.spec.srq, &qp, e, p.solicited);
    return TakeRecv::ok;
}

/// Checks the first packet of a tagged message. The packet must contain all headers. A rendezvous request must be a single
/// packet.
bool well_formed(TmOperation op, const wire::Packet& p) {
    if (op == TmOperation::eager) return p.payload_length >= kTmhBytes;
    return p.info->has(wire::kOnly) && p.payload_length >= kRndvBytes && p.payload_length <= kMaxRndvRequest;
}

}  // namespace

/// Determines the kind of the message and takes the receive buffer for the message.
TakeRecv TaggedReceives::take(Context& ctx, Qp& qp, const wire::Packet& p) {
    TagQp& m = *qp.tags;
    m.message = TagMessage::ordinary;
    if (p.payload_length == 0) return TakeRecv::refused;
    const auto op = TmOperation(p.payload[0]);
    if (op != TmOperation::eager && op != TmOperation::rendezvous) return take_ordinary(ctx, qp, p, TagMessage::no_tag);
    if (!well_formed(op, p)) return TakeRecv::refused;
    m.app_ctx = load_be<uint32_t>(p.payload + 4);
    m.tag = load_be<uint64_t>(p.payload + 8);
    TagEntry* entry = qp.spec.srq->tags->list.match(m.tag);
    if (entry == nullptr) return take_ordinary(ctx, qp, p, TagMessage::unexpected);
    return op == TmOperation::eager ? take_eager(ctx, qp, *entry, p) : take_rendezvous(ctx, qp, *entry, p);
}

bool TaggedReceives::finish_handed(Context& ctx, Qp& qp, const wire::Packet& p, bool good) {
    TagQp& m = *qp.tags;
    if (m.message != TagMessage::handed) return false;
    m.message = TagMessage::rendezvous;
    complete_handed(ctx, qp, m.handed, good ? WcStatus::tm_rndv_incomplete : WcStatus::loc_prot_err, p.solicited);
    return true;
}

bool TaggedReceives::locate(const Qp& qp, const wire::Packet& p, Part& part) {
    const TagMessage kind = qp.tags->message;
    if (kind != TagMessage::matched) return kind != TagMessage::rendezvous;
    if (p.info->has(wire::kFirst | wire::kOnly)) {
        part.payload += kTmhBytes;
        part.length -= kTmhBytes;
    } else {
        part.offset -= kTmhBytes;
    }
    return true;
}

/// Counts the messages that wait for slow memory (mem/slow_memory.hpp). While a message waits, the engine executes no operations
/// of the client (take_tag_operations).
void TaggedReceives::waits(Qp& qp, bool begins) {
    uint32_t& unreported = qp.spec.srq->tags->unreported;
    unreported = begins ? unreported + 1 : unreported - 1;
}

void TaggedReceives::describe(const Qp& qp, abi::Cqe& e) {
    TagQp& m = *qp.tags;
    TagSrq& t = *qp.spec.srq->tags;
    const bool good = e.status == WcStatus::success;
    const TagMessage kind = std::exchange(m.message, TagMessage::ordinary);
    if (kind == TagMessage::no_tag) e.opcode = WcOpcode::tm_no_tag;
    if (kind == TagMessage::unexpected) {
        e.opcode = WcOpcode::tm_recv;
        if (!good) forget_unexpected(t);
        if (t.unexpected - t.handled > kMaxLag) e.wc_flags |= abi::kWcTmSyncReq;
    }
    if (kind != TagMessage::matched) return;
    e.opcode = WcOpcode::tm_recv;
    e.queue = abi::kCqeTag;
    e.tag = m.tag;
    e.src_qp = m.app_ctx;
    if (e.byte_len >= kTmhBytes) e.byte_len -= kTmhBytes;
    if (good) e.wc_flags |= abi::kWcTmDataValid;
    if (!m.match_reported) e.wc_flags |= abi::kWcTmMatch;
}

void forget_unexpected(TagSrq& t) {
    --t.unexpected;
    if (in_phase(t)) t.list.release_waiting();
}

void forget_tagged(Qp& qp) {
    if (qp.responder.recv.held && qp.tags->message == TagMessage::unexpected) forget_unexpected(*qp.spec.srq->tags);
    *qp.tags = TagQp();
}

// ---- operations -----------------------------------------------------------------------------------------------------

namespace {

WcStatus add_entry(TagSrq& t, const abi::TagOp& op) {
    if (op.num_sge > abi::kMaxTagSge) return WcStatus::loc_qp_op_err;
    TagEntry entry;
    entry.handle = op.handle;
    entry.waits = !in_phase(t);
    entry.num_sge = op.num_sge;
    entry.recv_wr_id = op.recv_wr_id;
    entry.tag = op.tag;
    entry.mask = op.mask;
    std::copy_n(op.sges, op.num_sge, entry.sges.begin());
    for (uint32_t i = 0; i < op.num_sge; ++i) entry.capacity += op.sges[i].length;
    return t.list.add(entry) ? WcStatus::success : WcStatus::loc_qp_op_err;
}

/// Deletes an entry. An entry that was matched cannot be deleted any more.
WcStatus delete_entry(TagSrq& t, const abi::TagOp& op) {
    TagEntry* entry = t.list.find(op.handle);
    if (entry == nullptr) return WcStatus::tm_err;
    leave_list(t, *entry);
    return WcStatus::success;
}

WcStatus nothing_more(TagSrq&, const abi::TagOp&) { return WcStatus::success; }

struct OperationRow {
    WcOpcode wc;
    WcStatus (*execute)(TagSrq&, const abi::TagOp&);
};
/// Indexed by abi::TagOpcode.
constexpr OperationRow kOperations[] = {
    {WcOpcode::tm_add, add_entry}, {WcOpcode::tm_del, delete_entry}, {WcOpcode::tm_sync, nothing_more}};

void learn_handled(TagSrq& t, const abi::TagOp& op) {
    if ((op.flags & abi::kTagSync) == 0 && op.opcode != abi::TagOpcode::sync) return;
    t.handled = op.unexpected_count;
    if (in_phase(t)) t.list.release_waiting();
}

void execute(Context& ctx, Srq& srq, const abi::TagOp& op) {
    TagSrq& t = *srq.tags;
    const bool known = size_t(op.opcode) < std::size(kOperations);
    learn_handled(t, op);
    abi::Cqe e{};
    e.wr_id = op.wr_id;
    e.opcode = known ? kOperations[size_t(op.opcode)].wc : WcOpcode::tm_sync;
    e.status = known ? kOperations[size_t(op.opcode)].execute(t, op) : WcStatus::loc_qp_op_err;
    e.vendor_err = uint32_t(e.status);
    if (e.status == WcStatus::success && (op.flags & abi::kTagSignaled) == 0) return;
    if (!in_phase(t)) e.wc_flags |= abi::kWcTmSyncReq;
    complete_tag(ctx, srq, nullptr, e, false);
}

uint32_t posted_operations(const TagSrq& t) {
    return std::atomic_ref(t.spec.shared->producer).load(std::memory_order_acquire) - t.taken;
}

}  // namespace

bool take_tag_operations(Context& ctx, Srq& srq) {
    TagSrq& t = *srq.tags;
    const uint32_t claimed = posted_operations(t);
    if (t.broken) return false;
    if (t.unreported != 0) return true;  // the client must see the completions of these messages before later completions
    if (claimed > t.spec.depth) {        // the client claims more operations than the ring holds
        t.broken = true;
        raise_srq(ctx, srq, abi::AsyncEvent::srq_err);
        return false;
    }
    for (uint32_t n = 0; n < claimed; ++n) {
        abi::TagOp op;
        std::memcpy(&op, &t.spec.ops[t.taken++ & (t.spec.depth - 1)], sizeof op);
        execute(ctx, srq, op);
    }
    std::atomic_ref(t.spec.shared->consumed).store(t.taken, std::memory_order_release);
    std::atomic_ref idle(t.spec.shared->idle);
    idle.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (posted_operations(t) == 0) return false;
    idle.store(0, std::memory_order_relaxed);
    return true;
}

}  // namespace roci::qp
