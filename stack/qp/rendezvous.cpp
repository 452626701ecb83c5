// Executes matched rendezvous requests. The QP that received the request READs the data with its own requester. Ordering,
// retries and errors are therefore those of any READ. Then the QP sends the FIN.
#include <cstring>

#include "base/bytes.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;
using abi::WrOpcode;

abi::SendWqe& new_wqe(SendRecord& r) { return *new (&r + 1) abi::SendWqe{}; }

/// Builds the READ. Its SGEs are those of the matched buffer, truncated to the length of the data.
void write_read(const Qp& qp, uint32_t slot, SendRecord& r) {
    const Rendezvous& job = qp.tags->jobs[slot];
    abi::SendWqe& w = new_wqe(r);
    w.wr_id = job.recv_wr_id;
    w.opcode = WrOpcode::rdma_read;
    w.send_flags = abi::kSendSignaled;
    w.remote_addr = job.remote_va;
    w.rkey = job.rkey;
    w.compare_add = slot;
    auto* sges = reinterpret_cast<abi::Sge*>(&w + 1);
    uint32_t left = job.length;
    for (uint32_t i = 0; i < job.num_sge && left != 0; ++i) {
        sges[w.num_sge] = job.sges[i];
        sges[w.num_sge].length = std::min(left, job.sges[i].length);
        left -= sges[w.num_sge++].length;
    }
}

void write_fin(const Qp& qp, uint32_t slot, SendRecord& r) {
    abi::SendWqe& w = new_wqe(r);
    w.opcode = WrOpcode::send;
    w.send_flags = abi::kSendSignaled | abi::kSendInline;
    w.inline_length = kRndvBytes;
    w.compare_add = slot;
    auto* out = reinterpret_cast<uint8_t*>(&w + 1);
    std::memcpy(out, qp.tags->jobs[slot].header.data(), kRndvBytes);
    out[0] = uint8_t(TmOperation::fin);
}

}  // namespace

TagQp::TagQp() {
    for (uint32_t i = 0; i < kRendezvous; ++i) free.push(i);
}

void begin_rendezvous(Context& ctx, Qp& qp, const TagEntry& entry, const wire::Packet& p) {
    TagQp& t = *qp.tags;
    const uint32_t slot = t.free.pop();
    Rendezvous& job = t.jobs[slot];
    job.recv_wr_id = entry.recv_wr_id;
    job.remote_va = load_be<uint64_t>(p.payload + kTmhBytes);
    job.rkey = load_be<uint32_t>(p.payload + kTmhBytes + 8);
    job.length = load_be<uint32_t>(p.payload + kTmhBytes + 12);
    job.num_sge = entry.num_sge;
    job.sges = entry.sges;
    std::memcpy(job.header.data(), p.payload, kRndvBytes);
    t.to_read.push(slot);
    activate_requester(ctx, qp);
}

bool MatchedRendezvous::posted(const Qp& qp) { return qp.tags->to_read.count + qp.tags->to_finish.count != 0; }

bool MatchedRendezvous::fetch(Qp& qp, uint32_t) {
    TagQp& t = *qp.tags;
    Requester& rq = qp.requester;
    bool any = false;
    while (posted(qp) && rq.queue.length() < qp.spec.sq.depth) {
        if (!rq.window.has_room() && rq.queue.fetched() != rq.queue.tail()) break;
        SendRecord& r = rq.queue.append();
        if (t.to_finish.count != 0) {
            write_fin(qp, t.to_finish.pop(), r);
        } else {
            write_read(qp, t.to_read.pop(), r);
        }
        admit(qp, r);
        any = true;
    }
    return any;
}

/// Called when a READ or FIN is complete. After a READ, completes the tagged buffer and schedules the FIN. After a FIN, frees
/// the rendezvous.
void MatchedRendezvous::report(Context& ctx, Qp& qp, const SendRecord& r, WcStatus status, abi::Reason) {
    TagQp& t = *qp.tags;
    const abi::SendWqe& w = wqe(r);
    const auto slot = uint32_t(w.compare_add);
    if (w.opcode != WrOpcode::rdma_read) return t.free.push(slot);
    const Rendezvous& job = t.jobs[slot];
    abi::Cqe e{};
    e.wr_id = job.recv_wr_id;
    e.status = status;
    e.vendor_err = uint32_t(status);
    e.opcode = abi::WcOpcode::tm_recv;
    e.byte_len = job.length;  // tag and app_ctx have been reported with the match
    const bool good = status == WcStatus::success;
    if (good) e.wc_flags = abi::kWcTmDataValid;
    (good ? t.to_finish : t.free).push(slot);
    if (good) activate_requester(ctx, qp);
    complete_tag(ctx, *qp.spec.srq, &qp, e, false);
}

}  // namespace roci::qp
