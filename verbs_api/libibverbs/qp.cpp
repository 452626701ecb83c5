// Queue pairs: create, modify, query, destroy.
#include <algorithm>
#include <bit>

#include "context.hpp"
#include "log.hpp"

namespace roci::client {
namespace {

using abi::Op;

/// Sets qp.sq and the doorbell to the send queue in rocid's reply. Returns false if the reply is invalid. A depth of 0 means that
/// the QP has no send queue.
bool locate_send_queue(Context& c, const abi::CreateQpReply& reply, Qp& qp) {
    if (reply.sq_depth == 0) return true;
    const uint64_t payload = std::max<uint64_t>(uint64_t(reply.cap.max_send_sge) * sizeof(abi::Sge), reply.cap.max_inline_data);
    if (!std::has_single_bit(reply.sq_depth) || reply.sq_stride < abi::kSendWqeHead + payload) return false;
    std::byte* base = c.arena.locate(reply.sq, sizeof(abi::SqShared) + uint64_t(reply.sq_depth) * reply.sq_stride);
    if (base == nullptr || reply.engine >= c.engines || reply.slot >= abi::kDoorbellSlots) return false;
    qp.sq.shared = reinterpret_cast<abi::SqShared*>(base);
    qp.sq.slots = base + sizeof(abi::SqShared);
    qp.sq.depth = reply.sq_depth;
    qp.sq.stride = reply.sq_stride;
    qp.send_limit = std::min(reply.cap.max_send_wr, reply.sq_depth);
    qp.slot = reply.slot;
    qp.wake_fd = &c.wake_fd[reply.engine];
    qp.bell.page = reinterpret_cast<abi::DoorbellPage*>(c.doorbells.base + reply.engine * c.doorbell_stride);
    qp.bell.engine = &reinterpret_cast<const abi::EnginePage*>(c.engine_page.base)->engine[reply.engine];
    return true;
}

bool locate_receive_queue(Context& c, const abi::CreateQpReply& reply, Qp& qp) {
    if (reply.rq_depth == 0) return true;
    if (!std::has_single_bit(reply.rq_depth) ||
        reply.rq_stride < abi::kRecvWqeHead + uint64_t(reply.cap.max_recv_sge) * sizeof(abi::Sge))
        return false;
    std::byte* base = c.arena.locate(reply.rq, sizeof(abi::RqShared) + uint64_t(reply.rq_depth) * reply.rq_stride);
    if (base == nullptr) return false;
    qp.rq.shared = reinterpret_cast<abi::RqShared*>(base);
    qp.rq.slots = base + sizeof(abi::RqShared);
    qp.rq.depth = reply.rq_depth;
    qp.rq.stride = reply.rq_stride;
    qp.recv_limit = std::min(reply.cap.max_recv_wr, reply.rq_depth);
    return true;
}

uint32_t handle_of(const ibv_cq* cq) { return cq != nullptr ? cq->handle : abi::kNoHandle; }

abi::CreateQpRequest describe(const ibv_qp_init_attr_ex& a) {
    abi::CreateQpRequest r{};
    r.pd = a.pd != nullptr ? a.pd->handle : abi::kNoHandle;
    r.type = a.qp_type;
    r.send_cq = handle_of(a.send_cq);
    r.recv_cq = handle_of(a.recv_cq);
    r.srq = a.srq != nullptr ? a.srq->handle : abi::kNoHandle;
    r.xrcd = (a.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && a.xrcd != nullptr ? Xrcd::from(a.xrcd)->handle : abi::kNoHandle;
    r.sq_sig_all = a.sq_sig_all != 0 ? 1 : 0;
    r.create_flags = (a.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? a.create_flags : 0;
    r.cap = {a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data, 0};
    return r;
}

/// Returns true if the attributes have the CQs that the QP type needs. An XRC target needs no CQ. An XRC initiator needs only
/// send_cq. Other QPs need both CQs.
bool has_cqs(const ibv_qp_init_attr_ex& a) {
    if (a.qp_type == IBV_QPT_XRC_RECV) return true;
    return a.send_cq != nullptr && (a.recv_cq != nullptr || a.qp_type == IBV_QPT_XRC_SEND);
}

/// Checks the attributes as far as possible without a request to rocid. Returns 0 or an errno.
int check(const ibv_context* context, const ibv_qp_init_attr_ex& a) {
    constexpr uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if ((a.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
    const ibv_xrcd* xrcd = (a.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 ? a.xrcd : nullptr;
    if (!belongs(a.pd, context) || !belongs(a.send_cq, context) || !belongs(a.recv_cq, context) || !belongs(a.srq, context) ||
        !belongs(xrcd, context) || !has_cqs(a))
        return EINVAL;
    if ((a.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && (a.send_ops_flags & ~offered_send_ops(a.qp_type)) != 0)
        return EOPNOTSUPP;
    return 0;
}

void fill_public(Qp& qp, ibv_context* context, const ibv_qp_init_attr_ex& a, const abi::CreateQpReply& reply) {
    ibv_qp& p = qp.qp.qp_base;
    p.context = context;
    p.qp_context = a.qp_context;
    p.pd = a.pd;
    p.send_cq = a.send_cq;
    p.recv_cq = a.recv_cq;
    p.srq = a.srq;
    p.handle = reply.handle;
    p.qp_num = reply.qpn;
    p.state = IBV_QPS_RESET;
    p.qp_type = a.qp_type;
    pthread_mutex_init(&p.mutex, nullptr);
    pthread_cond_init(&p.cond, nullptr);
}

/// Creates the QP and sets a.cap to the granted capabilities.
ibv_qp* create(ibv_context* context, ibv_qp_init_attr_ex& a) {
    if (const int err = check(context, a); err != 0) return fail<ibv_qp>(err);
    Context& c = *Context::from(context);
    if (c.inherited) return fail<ibv_qp>(EIO);
    std::lock_guard guard(c.lifecycle);
    auto qp = std::unique_ptr<Qp>(new (std::nothrow) Qp{});
    if (!qp) return fail<ibv_qp>(ENOMEM);
    abi::CreateQpReply reply{};
    if (const int err = c.call(Op::create_qp, describe(a), reply); err != 0) return fail<ibv_qp>(err);
    if (!locate_send_queue(c, reply, *qp) || !locate_receive_queue(c, reply, *qp) || !c.qps.insert(reply.qpn, qp.get())) {
        log("create_qp: the queues in rocid's reply are not within its shared memory");
        c.destroy(Op::destroy_qp, reply.handle);
        return fail<ibv_qp>(EPROTO);
    }
    qp->generation = reply.generation;
    qp->extended = (a.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    qp->send_opcodes = sendable_opcodes(a.qp_type);
    qp->cap = reply.cap;
    qp->sq_sig_all = a.sq_sig_all;
    if (a.pd != nullptr && Pd::from(a.pd)->one_thread()) {
        qp->sq_lock.elide();
        qp->rq_lock.elide();
    }
    fill_public(*qp, context, a, reply);
    set_qp_ex_functions(*qp);
    a.cap = {reply.cap.max_send_wr, reply.cap.max_recv_wr, reply.cap.max_send_sge, reply.cap.max_recv_sge,
             reply.cap.max_inline_data};
    c.qp_events.insert(reply.handle, qp.get());
    return qp.release()->base();
}

/// Removes the remaining entries of a destroyed or reset QP from its CQs, as rdma-core's drivers do. IBA 10.2.4.4 permits the
/// removal but does not require it.
void purge(Context& c, const ibv_qp& p) {
    if (p.send_cq != nullptr) purge_qp(*Cq::from(p.send_cq), c, p.qp_num);
    if (p.recv_cq != nullptr && p.recv_cq != p.send_cq) purge_qp(*Cq::from(p.recv_cq), c, p.qp_num);
    if (p.srq == nullptr) return;
    Cq* srq_cq = Srq::from(p.srq)->cq;
    if (srq_cq != nullptr && srq_cq->base() != p.send_cq && srq_cq->base() != p.recv_cq) purge_qp(*srq_cq, c, p.qp_num);
}

/// Removes the QP's entries from its CQs and empties both queues, so that the queues start at index 0 again. rocid has already
/// reset the QP.
void reset_queues(Context& c, Qp& qp) {
    std::lock_guard send_guard(qp.sq_lock);
    std::lock_guard receive_guard(qp.rq_lock);
    purge(c, *qp.base());
    qp.sq.reset();
    qp.rq.reset();
    if (qp.sq.shared != nullptr) {
        std::atomic_ref(qp.sq.shared->idle).store(1, std::memory_order_release);
    }
    if (qp.rq.shared != nullptr) std::atomic_ref(qp.rq.shared->producer).store(0, std::memory_order_release);
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    const bool needs_pd = attr->qp_type != IBV_QPT_XRC_RECV;
    if (needs_pd && ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr)) return fail<ibv_qp>(EINVAL);
    ibv_qp_init_attr_ex copy = *attr;
    if ((copy.comp_mask & IBV_QP_INIT_ATTR_PD) == 0) copy.pd = nullptr;
    ibv_qp* qp = create(context, copy);
    if (qp != nullptr) attr->cap = copy.cap;
    return qp;
}

// Opens an XRC target QP, which another session may have created. An XRC target has no queues, so the library maps nothing.
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
    constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    const bool complete = (attr->comp_mask & kNeeded) == kNeeded && attr->xrcd != nullptr && attr->xrcd->context == context;
    if (!complete) return fail<ibv_qp>(EINVAL);
    if ((attr->comp_mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT)) != 0) return fail<ibv_qp>(EOPNOTSUPP);
    Context& c = *Context::from(context);
    auto qp = std::unique_ptr<Qp>(new (std::nothrow) Qp{});
    if (!qp) return fail<ibv_qp>(ENOMEM);
    const abi::OpenQpRequest request{Xrcd::from(attr->xrcd)->handle, attr->qp_num, uint32_t(attr->qp_type), 0};
    abi::HandleReply reply{};
    if (const int err = c.call(Op::open_qp, request, reply); err != 0) return fail<ibv_qp>(err);
    ibv_qp_init_attr_ex shape{};
    shape.qp_type = attr->qp_type;
    if ((attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) shape.qp_context = attr->qp_context;
    abi::CreateQpReply as_made{};
    as_made.handle = reply.handle;
    as_made.qpn = attr->qp_num;
    fill_public(*qp, context, shape, as_made);
    qp->generation = reply.generation;
    qp->qp.qp_base.state = IBV_QPS_UNKNOWN;
    set_qp_ex_functions(*qp);
    c.qp_events.insert(reply.handle, qp.get());
    return qp.release()->base();
}

}  // namespace roci::client

using namespace roci::client;
using roci::abi::Op;

// Some programs pass a pointer to struct ibv_qp_init_attr_ex. So this function uses only the fields of struct ibv_qp_init_attr,
// which both structs have.
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp_init_attr_ex full{};
    full.qp_context = attr->qp_context;
    full.send_cq = attr->send_cq;
    full.recv_cq = attr->recv_cq;
    full.srq = attr->srq;
    full.cap = attr->cap;
    full.qp_type = attr->qp_type;
    full.sq_sig_all = attr->sq_sig_all;
    full.comp_mask = IBV_QP_INIT_ATTR_PD;
    full.pd = pd;
    ibv_qp* qp = create(pd->context, full);
    if (qp != nullptr) attr->cap = full.cap;
    return qp;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* p) {
    Qp* qp = Qp::from(p);
    return qp->extended ? &qp->qp : nullptr;
}

int ibv_modify_qp(ibv_qp* p, ibv_qp_attr* attr, int mask) {
    Context& c = *Context::from(p->context);
    const bool new_state = (mask & IBV_QP_STATE) != 0;
    const bool to_reset = new_state && attr->qp_state == IBV_QPS_RESET;
    if (c.inherited) return refuse(EIO);
    std::unique_lock guard(c.lifecycle, std::defer_lock);
    if (to_reset) guard.lock();
    const roci::abi::ModifyQpRequest request{p->handle, uint32_t(mask), to_abi(*attr)};
    roci::abi::ModifyQpReply reply{};
    if (const int err = c.call(Op::modify_qp, request, reply); err != 0) return err;
    if (to_reset) reset_queues(c, *Qp::from(p));
    if (new_state) p->state = attr->qp_state;  // only a snapshot: the engine may change the state at any time
    return 0;
}

int ibv_query_qp(ibv_qp* p, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
    roci::abi::QueryQpReply reply{};
    const int err = Context::from(p->context)->call(Op::query_qp, roci::abi::HandleRequest{p->handle, 0}, reply);
    if (err != 0) return err;
    const Qp& qp = *Qp::from(p);
    from_abi(reply.attr, *attr);
    attr->cap = {qp.cap.max_send_wr, qp.cap.max_recv_wr, qp.cap.max_send_sge, qp.cap.max_recv_sge, qp.cap.max_inline_data};
    if (init_attr != nullptr) *init_attr = {p->qp_context, p->send_cq, p->recv_cq, p->srq, attr->cap, p->qp_type, qp.sq_sig_all};
    if ((mask & IBV_QP_STATE) != 0) p->state = attr->qp_state;
    return 0;
}

int ibv_destroy_qp(ibv_qp* p) {
    Qp* qp = Qp::from(p);
    Context& c = *Context::from(p->context);
    if (!c.inherited) {
        {
            std::lock_guard guard(c.lifecycle);
            if (const int err = c.destroy(Op::destroy_qp, p->handle); err != 0) return err;
            c.qps.erase(p->qp_num, qp);
            purge(c, *p);
            c.qp_events.erase(p->handle, qp);
        }
        await_acks(p->mutex, p->cond, p->events_completed, qp->delivered);
    }
    delete qp;
    return 0;
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

int ibv_set_ece(ibv_qp*, ibv_ece*) { return refuse(EOPNOTSUPP); }
int ibv_query_ece(ibv_qp*, ibv_ece*) { return refuse(EOPNOTSUPP); }

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
    roci::abi::McastRequest request{qp->handle, lid, {}};
    std::memcpy(request.gid.raw, gid->raw, sizeof request.gid.raw);
    return Context::from(qp->context)->tell(Op::attach_mcast, request);
}
int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
    roci::abi::McastRequest request{qp->handle, lid, {}};
    std::memcpy(request.gid.raw, gid->raw, sizeof request.gid.raw);
    return Context::from(qp->context)->tell(Op::detach_mcast, request);
}
