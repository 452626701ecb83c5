// Completion queues: create, poll, arm, resize, destroy.
#include <algorithm>

#include "abi/reasons.hpp"
#include "context.hpp"
#include "log.hpp"
#include "poller.hpp"

namespace roci::client {
namespace {

using abi::Op;

/// Sets `ring` to the ring in rocid's reply, at index 0. Returns false if the reply is invalid or the ring is not within this
/// process's mappings of the arena.
bool locate_ring(Context& c, const abi::CreateCqReply& reply, abi::CqConsumer& ring) {
    const bool shaped =
        reply.depth != 0 && (reply.depth & (reply.depth - 1)) == 0 && reply.lanes != 0 && reply.lanes <= abi::kMaxEngines;
    if (!shaped) return false;
    const uint64_t needed = sizeof(abi::CqShared) + reply.lanes * uint64_t(abi::CqConsumer::lane_bytes(reply.depth));
    std::byte* base = c.arena.locate(reply.where, needed);
    if (base == nullptr) return false;
    ring = {};
    ring.shared = reinterpret_cast<abi::CqShared*>(base);
    ring.lane_base = base + sizeof(abi::CqShared);
    ring.lanes = reply.lanes;
    ring.depth = reply.depth;
    return true;
}

void join_channel(Cq& cq, ibv_context* context, ibv_comp_channel* channel) {
    cq.cq.channel = channel;
    if (channel == nullptr) return;
    pthread_mutex_lock(&context->mutex);
    ++channel->refcnt;
    pthread_mutex_unlock(&context->mutex);
}

void leave_channel(const ibv_cq& cq) {
    if (cq.channel == nullptr) return;
    pthread_mutex_lock(&cq.context->mutex);
    --cq.channel->refcnt;
    pthread_mutex_unlock(&cq.context->mutex);
}

/// The attributes that ibv_create_cq and ibv_create_cq_ex have in common.
struct NewCq {
    uint32_t cqe;
    void* user;
    ibv_comp_channel* channel;
    uint32_t vector;
    uint32_t flags;
    uint64_t wc_flags;
};

Cq* create(ibv_context* context, const NewCq& wanted) {
    Context& c = *Context::from(context);
    if (wanted.cqe == 0 || wanted.cqe > uint32_t(INT32_MAX) || wanted.vector >= uint32_t(context->num_comp_vectors) ||
        !belongs(wanted.channel, context))
        return fail<Cq>(EINVAL);
    auto cq = std::unique_ptr<Cq>(new (std::nothrow) Cq{});
    if (!cq) return fail<Cq>(ENOMEM);
    const uint32_t channel = wanted.channel != nullptr ? Channel::from(wanted.channel)->handle : abi::kNoHandle;
    const uint32_t ignore_overrun = (wanted.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0 ? 1 : 0;
    abi::CreateCqReply reply{};
    const int err = c.call(Op::create_cq, abi::CreateCqRequest{wanted.cqe, channel, wanted.vector, ignore_overrun}, reply);
    if (err != 0) return fail<Cq>(err);
    if (!locate_ring(c, reply, cq->ring)) {
        c.destroy(Op::destroy_cq, reply.handle);
        return fail<Cq>(EPROTO);
    }
    cq->generation = reply.generation;
    if ((wanted.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) {
        cq->lock.elide();
        cq->arm_lock.elide();
    }
    cq->cq.context = context;
    cq->cq.cq_context = wanted.user;
    cq->cq.handle = reply.handle;
    cq->cq.cqe = int(reply.depth);
    pthread_mutex_init(&cq->cq.mutex, nullptr);
    pthread_cond_init(&cq->cq.cond, nullptr);
    set_cq_ex_functions(*cq, wanted.wc_flags);
    join_channel(*cq, context, wanted.channel);
    c.cq_events.insert(reply.handle, cq.get());
    return cq.release();
}

/// Frees the queue slot of a completed work request. The completion of a tagged buffer or of a tag operation frees no slot.
void free_slot(Context& c, const abi::Cqe& e) {
    if (e.queue == abi::kCqeTag) return;
    if (e.queue == abi::kCqeSrq) {
        if (Srq* srq = c.srqs.find(e.srq_handle)) srq->rq.free_recv();
        return;
    }
    Qp* qp = c.qps.find(e.qpn);
    if (qp == nullptr) return;
    if (e.queue == abi::kCqeSend)
        qp->sq.free_send(e.wqe_index);
    else
        qp->rq.free_recv();
}

template <class Doomed>
void purge(Cq& cq, Doomed doomed) {
    const std::lock_guard guard(cq.lock);
    for (uint32_t lane = 0; lane < cq.ring.lanes; ++lane) {
        for (uint32_t i = cq.ring.index[lane];; ++i) {
            abi::Cqe& e = *cq.ring.entry(lane, i);
            if (std::atomic_ref(e.seq).load(std::memory_order_acquire) != i + 1) break;
            if (doomed(e)) e.qpn = kDeadQpn;
        }
    }
}

void to_verbs(const abi::Cqe& e, ibv_wc& wc) {
    wc.wr_id = e.wr_id;
    wc.status = ibv_wc_status(e.status);
    wc.opcode = ibv_wc_opcode(e.opcode);
    wc.vendor_err = e.vendor_err;
    wc.byte_len = e.byte_len;
    wc.imm_data = e.imm_or_inv;
    wc.qp_num = e.qpn;
    wc.src_qp = e.src_qp;
    wc.wc_flags = e.wc_flags;
    wc.pkey_index = e.pkey_index;
    wc.slid = 0;
    wc.sl = e.sl;
    wc.dlid_path_bits = 0;
}

/// Logs the cause of a failed completion, because many programs do not print the cause. By default, the library prints only the
/// first failure of each cause.
[[gnu::cold]] void report_failure(const abi::Cqe& e) {
    const abi::ReasonText* reason = abi::find_reason(e.vendor_err);
    if (reason == nullptr || reason->reason == abi::Reason::flushed) return;
    log_kind(reason->name, "QP %u: %s; %s. \"roci why %u\" tells more", e.qpn, reason->text, reason->advice, e.qpn);
}

}  // namespace

void purge_qp(Cq& cq, Context& context, uint32_t qpn) {
    purge(cq, [&](const abi::Cqe& e) {
        if (e.qpn != qpn) return false;
        if (e.queue == abi::kCqeSrq) free_slot(context, e);  // the SRQ still exists and gets its slot back
        return true;
    });
}

void purge_srq(Cq& cq, uint32_t srq_handle) {
    purge(cq, [&](const abi::Cqe& e) { return e.queue >= abi::kCqeSrq && e.srq_handle == srq_handle; });
}

bool take_entry(Cq& cq, Context& context, abi::Cqe& out) {
    while (const abi::Cqe* e = cq.ring.peek()) {
        const bool dead = e->qpn == kDeadQpn;
        if (!dead) out = *e;
        cq.ring.pop();
        if (dead) continue;
        free_slot(context, out);
        if (out.status != abi::WcStatus::success) [[unlikely]]
            report_failure(out);
        return true;
    }
    return context.flushes.load(std::memory_order_acquire) && take_flushed(cq, context, out);
}

int poll_cq(ibv_cq* p, int entries, ibv_wc* wc) {
    Cq& cq = *Cq::from(p);
    Context& c = *Context::from(p->context);
    int taken = 0;
    {
        const std::lock_guard guard(cq.lock);
        abi::Cqe e;
        while (taken < entries && take_entry(cq, c, e)) to_verbs(e, wc[taken++]);
    }
    if (taken == 0) {
        look_after_rocid(c);
        polled_in_vain(cq);
    } else {
        polled();
    }
    return taken;
}

int req_notify_cq(ibv_cq* p, int solicited_only) {
    Cq& cq = *Cq::from(p);
    const std::lock_guard guard(cq.arm_lock);
    cq.ring.arm(solicited_only != 0);
    return 0;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    constexpr uint32_t kMasks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    constexpr uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    const bool known = (attr->wc_flags & ~uint64_t(IBV_CREATE_CQ_SUP_WC_FLAGS)) == 0 && (attr->comp_mask & ~kMasks) == 0 &&
                       (flags & ~kFlags) == 0;
    if (!known) return fail<ibv_cq_ex>(EOPNOTSUPP);
    const bool has_parent = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
    if (has_parent && (attr->parent_domain == nullptr || Pd::from(attr->parent_domain)->contained == nullptr))
        return fail<ibv_cq_ex>(EINVAL);
    const uint32_t single = has_parent && Pd::from(attr->parent_domain)->one_thread() ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0;
    Cq* cq = create(context, {attr->cqe, attr->cq_context, attr->channel, attr->comp_vector, flags | single, attr->wc_flags});
    return cq != nullptr ? &cq->cq : nullptr;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
    if ((attr->attr_mask & ~uint32_t(IBV_CQ_ATTR_MODERATE)) != 0) return EOPNOTSUPP;
    const abi::ModifyCqRequest request{cq->handle, attr->moderate.cq_count, attr->moderate.cq_period, 0};
    return Context::from(cq->context)->tell(Op::modify_cq, request);
}

}  // namespace roci::client

using namespace roci::client;

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int vector) {
    if (cqe <= 0 || vector < 0) return fail<ibv_cq>(EINVAL);
    Cq* cq = create(context, {uint32_t(cqe), user, channel, uint32_t(vector), 0, 0});
    return cq != nullptr ? cq->base() : nullptr;
}

// Holds both locks of the CQ during the resize, because rocid moves the entries that were not polled to the new ring. The first
// of these entries gets index 0.
int ibv_resize_cq(ibv_cq* p, int cqe) {
    if (cqe <= 0) return refuse(EINVAL);
    Cq& cq = *Cq::from(p);
    Context& c = *Context::from(p->context);
    const std::lock_guard guard(cq.lock);
    const std::lock_guard arm_guard(cq.arm_lock);
    roci::abi::ResizeCqRequest request{p->handle, uint32_t(cqe), {}};
    std::copy(std::begin(cq.ring.index), std::end(cq.ring.index), request.consumer);
    roci::abi::CreateCqReply reply{};
    if (const int err = c.call(roci::abi::Op::resize_cq, request, reply); err != 0) return err;
    const uint32_t armed = std::atomic_ref(cq.ring.shared->arm).load(std::memory_order_relaxed);
    roci::abi::CqConsumer ring;
    if (!locate_ring(c, reply, ring)) return refuse(EPROTO);
    std::atomic_ref(ring.shared->arm).store(armed, std::memory_order_release);
    cq.ring = ring;
    p->cqe = int(reply.depth);
    return 0;
}

int ibv_destroy_cq(ibv_cq* p) {
    Cq* cq = Cq::from(p);
    Context& c = *Context::from(p->context);
    if (const int err = c.destroy(roci::abi::Op::destroy_cq, p->handle); err != 0) return err;
    if (!c.inherited) {
        c.cq_events.erase(p->handle, cq);
        await_acks(p->mutex, p->cond, p->comp_events_completed, cq->comp_delivered);
        await_acks(p->mutex, p->cond, p->async_events_completed, cq->async_delivered);
    }
    leave_channel(*p);
    delete cq;
    return 0;
}
