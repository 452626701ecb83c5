// Fetches WQEs from the client's ring. Each WQE is copied once, then the copy is validated. A faulty WQE completes with an error
// after all WQEs before it.
#include <cstring>

#include "qp/roles.hpp"
#include "rings/doorbell.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

/// Checks the format of the WQE and computes the length of the message. Returns success, or the status with which the WQE will
/// complete.
WcStatus measure(const Qp& qp, const abi::SendWqe& w, uint64_t& length) {
    if ((w.send_flags & abi::kSendInline) != 0) {
        length = w.inline_length;
        return w.num_sge == 0 && w.inline_length <= qp.spec.max_inline_data ? WcStatus::success : WcStatus::loc_qp_op_err;
    }
    if (w.opcode == abi::WrOpcode::atomic_write) {  // the bytes are in the WQE itself
        length = kAtomicWriteBytes;
        return w.num_sge == 0 ? WcStatus::success : WcStatus::loc_qp_op_err;
    }
    if (w.opcode == abi::WrOpcode::flush) {  // the packet has no payload, and `length` is the length of the range
        length = w.flush_length;
        if (w.num_sge != 0 || !abi::valid_flush(w.flush)) return WcStatus::loc_qp_op_err;
        return length <= kMaxMessage ? WcStatus::success : WcStatus::loc_len_err;
    }
    if (w.num_sge > qp.spec.max_send_sge) return WcStatus::loc_qp_op_err;
    const auto* sge = reinterpret_cast<const abi::Sge*>(&w + 1);
    length = 0;
    for (uint32_t i = 0; i < w.num_sge; ++i) length += sge[i].length;
    return length <= kMaxMessage ? WcStatus::success : WcStatus::loc_len_err;
}

/// Checks the rules that depend on the opcode (IBA 10.8.2.1, 11.4.1.1). Returns success, or the status with which the WQE will
/// complete.
WcStatus check_operation(const Qp& qp, const abi::SendWqe& w, const WorkInfo& info, uint64_t length) {
    if (info.kind == WorkKind::none) return WcStatus::loc_qp_op_err;
    if (!sends(qp.spec.type, info.kind)) return WcStatus::loc_qp_op_err;
    if ((w.send_flags & abi::kSendIpCsum) != 0 && qp.spec.type != Type::ud) return WcStatus::loc_qp_op_err;
    if (qp.spec.type == Type::ud && (length > qp.mtu || w.opcode == abi::WrOpcode::send_inv))
        return length > qp.mtu ? WcStatus::loc_len_err : WcStatus::loc_qp_op_err;
    if (!needs_response(info.kind)) return WcStatus::success;
    if (qp.max_rd_atomic == 0) return WcStatus::loc_qp_op_err;
    if ((w.send_flags & abi::kSendInline) != 0) return WcStatus::loc_qp_op_err;
    if (info.kind == WorkKind::atomic && length != 8) return WcStatus::loc_len_err;
    return WcStatus::success;
}

uint32_t packets_for(const Qp& qp, WorkKind kind, uint64_t length) {
    if (kind == WorkKind::local) return 0;
    if (kind == WorkKind::atomic || kind == WorkKind::flush || length == 0) return 1;
    return uint32_t((length + qp.mtu - 1) >> qp.mtu_shift);
}

/// The fetch of a WQE prefetches the slot that is this number of slots ahead in the ring. The slots are in the cache of another
/// core, because the client has written them.
constexpr uint32_t kAhead = 4;
constexpr uint32_t kLine = 64;

void take(Qp& qp) {
    const rings::SqView& sq = qp.spec.sq;
    const uint32_t index = qp.requester.queue.fetched();
    __builtin_prefetch(sq.slot(index + kAhead));
    SendRecord& r = qp.requester.queue.append();
    auto* copy = reinterpret_cast<std::byte*>(&r + 1);
    std::memcpy(copy, sq.slot(index), kLine);
    if (const uint64_t used = std::min<uint64_t>(abi::used_bytes(wqe(r)), sq.stride); used > kLine)
        std::memcpy(copy + kLine, sq.slot(index) + kLine, used - kLine);
    admit(qp, r);
}

}  // namespace

void admit(Qp& qp, SendRecord& r) {
    Requester& rq = qp.requester;
    const abi::SendWqe& w = wqe(r);
    const WorkInfo& info = work_info(w.opcode);
    uint64_t length = 0;
    r.fault = measure(qp, w, length);
    if (r.fault == WcStatus::success) r.fault = check_operation(qp, w, info, length);
    if (r.fault != WcStatus::success) length = 0;
    r.kind = info.kind;
    r.wc = info.wc;
    r.takes_recv = info.takes_recv;
    r.length = uint32_t(length);
    r.packets = packets_for(qp, info.kind, length);
    r.first_psn = rq.window.allocate(r.packets);
    r.ssn = info.kind == WorkKind::local ? rq.next_ssn : ++rq.next_ssn;
    r.signaled = qp.spec.sq_sig_all || (w.send_flags & abi::kSendSignaled) != 0;
    r.fence = (w.send_flags & abi::kSendFence) != 0;
}

bool ClientQueue::arm_doorbell(Qp& qp) {
    if (qp.spec.sq.depth == 0) return false;
    rings::announce_idle(qp.spec.sq);
    return true;
}

bool recheck_doorbell(Qp& qp) { return rings::stays_idle(qp.spec.sq, qp.requester.queue.fetched()); }

bool ClientQueue::fetch(Qp& qp, uint32_t most) {
    ROCI_STAGE(fetch);
    Requester& rq = qp.requester;
    const uint32_t depth = qp.spec.sq.depth;
    if (depth == 0) return false;
    if (qp.spec.sq.stride > kLine)
        __builtin_prefetch(qp.spec.sq.slot(rq.queue.fetched()) + kLine);  // loads both lines in parallel
    const uint32_t before = rq.queue.fetched();
    // The queue never holds more WQEs than the client's ring has slots, whatever the client has marked as posted.
    while (most-- != 0 && rq.queue.length() < depth && qp.spec.sq.posted(rq.queue.fetched())) {
        if (!rq.window.has_room() && rq.queue.fetched() != rq.queue.tail()) break;
        take(qp);
    }
    return rq.queue.fetched() != before;
}

}  // namespace roci::qp
