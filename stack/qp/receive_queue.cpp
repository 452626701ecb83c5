// Takes receive WQEs from the QP's own RQ or from its SRQ. Each WQE is copied once and bounds-checked.
#include <cstring>

#include "qp/roles.hpp"

namespace roci::qp {
namespace {

/// Returns the SRQ of the packet's receive WQE, or nullptr if there is none. An XRC packet contains the number of its SRQ. This
/// SRQ must belong to the QP's XRC domain (IBA A14.2.4) and engine.
Srq* srq_of(const Context& ctx, const Qp& qp, const wire::Packet* p) {
    if (qp.spec.type != Type::xrc_recv) return qp.spec.srq;
    Srq* srq = p != nullptr ? ctx.shared->srqs.find(p->xrc_srqn) : nullptr;
    const bool usable = srq != nullptr && srq->spec.xrcd == qp.spec.xrcd && srq->spec.engine == qp.spec.engine;
    return usable ? srq : nullptr;
}

}  // namespace

void check_srq_limit(Context& ctx, Srq& srq) {
    if (srq.limit == 0 || srq.cursor.posted(srq.rq, srq.limit) >= srq.limit) return;
    srq.limit = 0;  // the event disarms the limit (IBA 10.2.9.3)
    raise_srq(ctx, srq, abi::AsyncEvent::srq_limit_reached);
}

uint32_t recv_available(const Qp& qp) {
    const Srq* srq = qp.spec.srq;
    const rings::RqView& q = srq != nullptr ? srq->rq : qp.spec.rq;
    const rings::RqCursor& at = srq != nullptr ? srq->cursor : qp.rq_cursor;
    return q.depth != 0 ? std::min(q.producer() - at.consumed, q.depth) : 0;
}

uint32_t recv_credits(Qp& qp) {
    const rings::RqView& q = qp.spec.rq;
    rings::RqCursor& at = qp.rq_cursor;
    return q.depth != 0 ? std::min(at.posted(q, std::max(at.enough, 1u)), q.depth) : 0;
}

TakeRecv take_recv(Context& ctx, Qp& qp, const wire::Packet* packet, uint64_t least) {
    ROCI_STAGE(fetch);
    Srq* srq = srq_of(ctx, qp, packet);
    if (srq == nullptr && qp.spec.type == Type::xrc_recv) return TakeRecv::no_queue;
    const rings::RqView& q = srq != nullptr ? srq->rq : qp.spec.rq;
    rings::RqCursor& at = srq != nullptr ? srq->cursor : qp.rq_cursor;
    if (q.depth == 0) return TakeRecv::empty;
    const uint32_t available = at.posted(q, 1);
    if (available == 0) return TakeRecv::empty;
    if (available > q.depth) return TakeRecv::malformed;  // the client's index is invalid: more WQEs than slots
    const std::byte* slot = q.slot(at.consumed);
    __builtin_prefetch(q.slot(at.consumed + 1));  // the WQE of the next message, which may be in another core's cache
    abi::RecvWqe head;
    std::memcpy(&head, slot, sizeof head);
    RecvWork& work = qp.responder.recv;
    work.held = true;
    work.srq = srq;
    work.pd = srq != nullptr ? srq->spec.pd : qp.spec.pd;
    work.wr_id = head.wr_id;
    work.num_sge = 0;
    work.capacity = 0;
    if (head.num_sge > q.max_sge) {
        ++at.consumed;
        return TakeRecv::malformed;
    }
    work.num_sge = uint16_t(head.num_sge);
    abi::Sge* sges = work.sges.get();
    std::memcpy(sges, slot + abi::kRecvWqeHead, head.num_sge * sizeof(abi::Sge));
    for (uint32_t i = 0; i < head.num_sge; ++i) work.capacity += sges[i].length;
    if (work.capacity < least) {
        work.held = false;
        return TakeRecv::too_short;
    }
    ++at.consumed;
    if (srq != nullptr) check_srq_limit(ctx, *srq);
    return TakeRecv::ok;
}

}  // namespace roci::qp
