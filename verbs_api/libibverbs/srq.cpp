// Shared receive queues.
#include <algorithm>
#include <bit>

#include "context.hpp"

namespace roci::client {
namespace {

using abi::Op;

/// Sets the producer's pointers to the ring in rocid's reply, and leaves the producer's indices unchanged. Returns false if
/// `depth` is invalid or the ring is not within this process's mappings of the arena.
bool locate_ring(Context& c, const abi::Location& where, uint32_t depth, abi::RqProducer& rq) {
    if (!std::has_single_bit(depth)) return false;
    std::byte* base = c.arena.locate(where, sizeof(abi::RqShared) + uint64_t(depth) * rq.stride);
    if (base == nullptr) return false;
    rq.shared = reinterpret_cast<abi::RqShared*>(base);
    rq.slots = base + sizeof(abi::RqShared);
    rq.depth = depth;
    return true;
}

bool first_ring(Context& c, const abi::CreateSrqReply& reply, Srq& srq) {
    if (reply.stride < abi::kRecvWqeHead + uint64_t(reply.max_sge) * sizeof(abi::Sge)) return false;
    srq.rq.stride = reply.stride;
    srq.limit = std::min(reply.max_wr, reply.depth);
    return locate_ring(c, reply.where, reply.depth, srq.rq);
}

bool move_ring(Context& c, const abi::ModifySrqReply& reply, Srq& srq) {
    srq.limit = std::min(reply.max_wr, reply.depth);
    return locate_ring(c, reply.where, reply.depth, srq.rq);
}

/// Finds the rings of tag matching in the arena. Returns false if rocid's reply is invalid, and true for an SRQ without tag
/// matching.
bool locate_tags(Context& c, const abi::TagQueue& q, Srq& srq) {
    if (q.depth == 0) return true;
    const bool shaped = std::has_single_bit(q.depth) && std::has_single_bit(q.handles) && q.max_ops <= q.depth &&
                        q.max_tags <= q.handles && q.max_tags <= 0x10000;
    if (!shaped || q.engine >= c.engines || q.slot >= abi::kDoorbellSlots) return false;
    std::byte* base = c.arena.locate(q.where, abi::tag_queue_bytes(q.depth, q.handles));
    if (base == nullptr) return false;
    srq.tags = abi::TagProducer(base, q);
    return true;
}

ibv_srq* create(ibv_pd* pd, void* user, ibv_srq_attr& attr, abi::CreateSrqRequest request, ibv_cq* cq) {
    Context& c = *Context::from(pd->context);
    std::unique_lock guard(c.lifecycle, std::defer_lock);
    if (!c.inherited) guard.lock();
    auto srq = std::unique_ptr<Srq>(new (std::nothrow) Srq{});
    if (!srq) return fail<ibv_srq>(ENOMEM);
    request.pd = pd->handle;
    request.max_wr = attr.max_wr;
    request.max_sge = attr.max_sge;
    request.limit = attr.srq_limit;
    abi::CreateSrqReply reply{};
    if (const int err = c.call(Op::create_srq, request, reply); err != 0) return fail<ibv_srq>(err);
    if (!first_ring(c, reply, *srq) || !c.srqs.insert(reply.handle, srq.get())) {
        c.destroy(Op::destroy_srq, reply.handle);
        return fail<ibv_srq>(EPROTO);
    }
    srq->generation = reply.generation;
    srq->srqn = reply.srqn;
    srq->max_sge = reply.max_sge;
    if (!locate_tags(c, reply.tags, *srq)) {
        c.srqs.erase(reply.handle, srq.get());
        c.destroy(Op::destroy_srq, reply.handle);
        return fail<ibv_srq>(EPROTO);
    }
    srq->cq = cq != nullptr ? Cq::from(cq) : nullptr;
    if (Pd::from(pd)->one_thread()) srq->lock.elide();
    srq->srq.context = pd->context;
    srq->srq.srq_context = user;
    srq->srq.pd = pd;
    srq->srq.handle = reply.handle;
    pthread_mutex_init(&srq->srq.mutex, nullptr);
    pthread_cond_init(&srq->srq.cond, nullptr);
    attr.max_wr = reply.max_wr;
    attr.max_sge = reply.max_sge;
    c.srq_events.insert(reply.handle, srq.get());
    return &srq.release()->srq;
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    const uint32_t mask = attr->comp_mask;
    if ((mask & ~uint32_t(IBV_SRQ_INIT_ATTR_RESERVED - 1)) != 0) return fail<ibv_srq>(EOPNOTSUPP);
    if ((mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr || attr->pd->context != context) return fail<ibv_srq>(EINVAL);
    const ibv_srq_type type = (mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
    const bool has_xrcd = (mask & IBV_SRQ_INIT_ATTR_XRCD) != 0 && attr->xrcd != nullptr;
    const bool has_cq = (mask & IBV_SRQ_INIT_ATTR_CQ) != 0 && attr->cq != nullptr;
    if ((has_xrcd && !belongs(attr->xrcd, context)) || (has_cq && !belongs(attr->cq, context))) return fail<ibv_srq>(EINVAL);
    const bool has_tm = (mask & IBV_SRQ_INIT_ATTR_TM) != 0;
    if (type == IBV_SRQT_XRC && !(has_xrcd && has_cq)) return fail<ibv_srq>(EINVAL);
    if (type == IBV_SRQT_TM && !(has_cq && has_tm)) return fail<ibv_srq>(EINVAL);
    abi::CreateSrqRequest request{};
    request.type = type;
    request.xrcd = has_xrcd ? Xrcd::from(attr->xrcd)->handle : abi::kNoHandle;
    request.cq = has_cq ? attr->cq->handle : abi::kNoHandle;
    if (has_tm) {
        request.tm_max_tags = attr->tm_cap.max_num_tags;
        request.tm_max_ops = attr->tm_cap.max_ops;
    }
    ibv_srq* srq = create(attr->pd, attr->srq_context, attr->attr, request, has_cq ? attr->cq : nullptr);
    if (srq != nullptr && type == IBV_SRQT_TM)
        attr->tm_cap = {Srq::from(srq)->tags.shape().max_tags, Srq::from(srq)->tags.shape().max_ops};
    return srq;
}

int get_srq_num(ibv_srq* srq, uint32_t* number) {
    *number = Srq::from(srq)->srqn;
    return 0;
}

}  // namespace roci::client

using namespace roci::client;
using roci::abi::Op;

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    roci::abi::CreateSrqRequest request{};
    request.type = IBV_SRQT_BASIC;
    request.xrcd = request.cq = roci::abi::kNoHandle;
    return create(pd, attr->srq_context, attr->attr, request, nullptr);
}

// During a resize the function holds the SRQ's lock, because rocid moves the queued requests to the new ring. The requests keep
// their indices.
int ibv_modify_srq(ibv_srq* p, ibv_srq_attr* attr, int mask) {
    Srq& srq = *Srq::from(p);
    Context& c = *Context::from(p->context);
    std::unique_lock guard(srq.lock, std::defer_lock);
    if ((mask & IBV_SRQ_MAX_WR) != 0) guard.lock();
    const roci::abi::ModifySrqRequest request{p->handle, uint32_t(mask), attr->max_wr, attr->srq_limit};
    roci::abi::ModifySrqReply reply{};
    if (const int err = c.call(Op::modify_srq, request, reply); err != 0) return err;
    return reply.depth == 0 || move_ring(c, reply, srq) ? 0 : refuse(EPROTO);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
    roci::abi::QuerySrqReply reply{};
    const int err = Context::from(srq->context)->call(Op::query_srq, roci::abi::HandleRequest{srq->handle, 0}, reply);
    if (err == 0) *attr = {reply.max_wr, reply.max_sge, reply.limit};
    return err;
}

int ibv_destroy_srq(ibv_srq* p) {
    Srq* srq = Srq::from(p);
    Context& c = *Context::from(p->context);
    if (!c.inherited) {
        std::lock_guard guard(c.lifecycle);
        if (const int err = c.destroy(Op::destroy_srq, p->handle); err != 0) return err;
        c.srqs.erase(p->handle, srq);
        if (srq->cq != nullptr) purge_srq(*srq->cq, p->handle);
        c.srq_events.erase(p->handle, srq);
    }
    if (!c.inherited) await_acks(p->mutex, p->cond, p->events_completed, srq->delivered);
    delete srq;
    return 0;
}
