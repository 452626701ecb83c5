// Creation, the state machine's actions, and snapshots. Which transitions and attributes are legal was decided by the conductor
// (qp/attributes.hpp); here is what each attribute and each state does to the transport.
#include <bit>
#include <new>

#include "qp/attributes.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

void set_mtu_bytes(Qp& qp, uint32_t bytes) {
    qp.mtu = bytes;
    qp.mtu_shift = uint32_t(std::countr_zero(bytes));
}
void set_mtu(Qp& qp, const Change& c) {
    set_mtu_bytes(qp, mtu_bytes(c.attr.path_mtu));
    qp.attr.path_mtu = c.attr.path_mtu;
}
void set_path(Qp& qp, const Change& c) {
    qp.path = c.path;
    qp.hairpin = c.hairpin;
    qp.attr.ah = c.attr.ah;
}
void set_rq_psn(Qp& qp, const Change& c) {
    qp.responder.expected = Psn(c.attr.rq_psn);
    qp.attr.rq_psn = c.attr.rq_psn;
}
void set_sq_psn(Qp& qp, const Change& c) {
    Requester& rq = qp.requester;
    rq.una = rq.next = rq.sent_end = rq.fetch_psn = Psn(c.attr.sq_psn);
    qp.attr.sq_psn = c.attr.sq_psn;
}
void set_timeout(Qp& qp, const Change& c) {
    qp.ack_timeout = ack_timeout(c.attr.timeout);
    qp.attr.timeout = c.attr.timeout;
}
void set_retry(Qp& qp, const Change& c) { qp.retry_cnt = qp.requester.retries_left = qp.attr.retry_cnt = c.attr.retry_cnt; }
void set_rnr_retry(Qp& qp, const Change& c) {
    qp.rnr_retry = qp.requester.rnr_retries_left = qp.attr.rnr_retry = c.attr.rnr_retry;
}
void set_dest_reads(Qp& qp, const Change& c) {
    qp.max_dest_rd_atomic = qp.attr.max_dest_rd_atomic = c.attr.max_dest_rd_atomic;
    qp.responder.jobs.assign(2u * c.attr.max_dest_rd_atomic + 1u, {});
    qp.responder.atomics.assign(c.attr.max_dest_rd_atomic + 1u, {});
    qp.responder.job_head = qp.responder.job_count = qp.responder.atomic_next = 0;
}

/// What each bit of the attribute mask changes.
struct Setter {
    uint32_t bit;
    void (*apply)(Qp&, const Change&);
};
constexpr Setter kSetters[] = {
    {kAttrEnSqdAsyncNotify, [](Qp& q, const Change& c) { q.attr.en_sqd_async_notify = c.attr.en_sqd_async_notify; }},
    {kAttrAccessFlags, [](Qp& q, const Change& c) { q.access = q.attr.qp_access_flags = c.attr.qp_access_flags; }},
    {kAttrPkeyIndex, [](Qp& q, const Change& c) { q.attr.pkey_index = c.attr.pkey_index; }},
    {kAttrPort, [](Qp& q, const Change& c) { q.attr.port_num = c.attr.port_num; }},
    {kAttrQkey, [](Qp& q, const Change& c) { q.attr.qkey = c.attr.qkey; }},
    {kAttrAv, set_path},
    {kAttrPathMtu, set_mtu},
    {kAttrTimeout, set_timeout},
    {kAttrRetryCount, set_retry},
    {kAttrRnrRetry, set_rnr_retry},
    {kAttrRqPsn, set_rq_psn},
    {kAttrMaxRdAtomic, [](Qp& q, const Change& c) { q.max_rd_atomic = q.attr.max_rd_atomic = c.attr.max_rd_atomic; }},
    {kAttrMinRnrTimer, [](Qp& q, const Change& c) { q.min_rnr_timer = q.attr.min_rnr_timer = c.attr.min_rnr_timer; }},
    {kAttrSqPsn, set_sq_psn},
    {kAttrMaxDestRdAtomic, set_dest_reads},
    {kAttrPathMigState, [](Qp& q, const Change& c) { q.attr.path_mig_state = c.attr.path_mig_state; }},
    {kAttrDestQpn, [](Qp& q, const Change& c) { q.dest = Qpn{q.attr.dest_qp_num = c.attr.dest_qp_num}; }},
};

/// RESET forgets everything but what the QP was created with; the client restarts its rings at 0 as well.
void reset(Context& ctx, Qp& qp) {
    ctx.wheel.cancel(qp.timer);
    deactivate(ctx, qp);
    if (qp.tags != nullptr) forget_tagged(qp);
    auto records = std::move(qp.requester.records);
    auto wqes = std::move(qp.requester.wqes);
    qp.requester = Requester{};
    qp.requester.records = std::move(records);
    qp.requester.wqes = std::move(wqes);
    auto sges = std::move(qp.responder.recv.sges);
    qp.responder = Responder{};
    qp.responder.recv.sges = std::move(sges);
    qp.attr = abi::QpAttr{};
    qp.established = qp.sqd_pending = false;
    qp.access = 0;
    qp.rq.consumed = 0;
    if (qp.spec.sq.depth != 0) {
        std::atomic_ref(qp.spec.sq.shared->producer).store(0, std::memory_order_relaxed);
        std::atomic_ref(qp.spec.sq.shared->idle).store(1, std::memory_order_release);
    }
    if (qp.rq.depth == 0) return;
    std::atomic_ref(qp.rq.shared->producer).store(0, std::memory_order_relaxed);
    std::atomic_ref(qp.rq.shared->ring).store(0, std::memory_order_release);
}

void enter(Context& ctx, Qp& qp, State next) {
    if (next == State::reset) {
        reset(ctx, qp);
        qp.state = State::reset;
        return;
    }
    if (next == State::err) return enter_error(ctx, qp);
    if (qp.state == State::sqe)
        flush_queues(ctx, qp);  // what was posted before the way back to RTS is flushed, nothing of it is sent
    if (next == State::rtr && qp.responder.jobs.empty()) set_dest_reads(qp, Change{});
    if (next == State::rtr && qp.spec.type == Type::ud) {  // a datagram is as long as the port allows
        const engine::PortAddresses* port = ctx.shared->addresses.find(qp.spec.port);
        set_mtu_bytes(qp, port != nullptr ? port->mtu_bytes : 1024);
    }
    qp.sqd_pending = next == State::sqd && qp.state == State::rts;
    qp.state = next;
    activate(ctx, qp);
    report_drained(ctx, qp);
}

}  // namespace

Qp* create(const Spec& spec) {
    auto qp = std::make_unique<Qp>();
    qp->spec = spec;
    qp->rq = spec.rq;
    qp->timer.owner = qp.get();
    if (spec.sq.depth != 0) {
        qp->requester.records = std::make_unique<SendRecord[]>(spec.sq.depth);
        qp->requester.wqes = std::make_unique<std::byte[]>(size_t(spec.sq.depth) * spec.sq.stride);
        std::atomic_ref(spec.sq.shared->idle).store(1, std::memory_order_release);
    }
    // an XRC target may meet any SRQ of its domain
    const uint32_t recv_sges = spec.type == Type::xrc_recv ? kMaxRecvSge
                               : spec.srq != nullptr       ? spec.srq->rq.max_sge
                                                           : spec.rq.max_sge;
    const bool tags = spec.srq != nullptr && spec.srq->tags != nullptr;
    if (tags) qp->tags = std::make_unique<TagQp>();
    qp->responder.recv.sges = std::make_unique<abi::Sge[]>(std::max(recv_sges, tags ? abi::kMaxTagSge : 1u));
    return qp.release();
}

void free(Qp* qp) { delete qp; }

Srq* create_srq(const SrqSpec& spec) {
    auto srq = std::make_unique<Srq>();
    srq->spec = spec;
    srq->rq = spec.rq;
    srq->limit = spec.limit;
    if (spec.tags.shared != nullptr) srq->tags = std::make_unique<TagSrq>(spec.tags);
    return srq.release();
}

void free(Srq* srq) { delete srq; }

int apply_change(Context& ctx, Qp& qp, const Change& change) {
    const bool moves = (change.mask & kAttrState) != 0;
    if (moves && change.next == State::reset) {
        enter(ctx, qp, State::reset);
        return 0;
    }
    for (const Setter& s : kSetters)
        if ((change.mask & s.bit) != 0) s.apply(qp, change);
    if (moves) enter(ctx, qp, change.next);
    return 0;
}

void snapshot(const Qp& qp, Snapshot& out) {
    out.state = qp.state;
    out.attr = qp.attr;
    out.attr.qp_state = uint32_t(qp.state);
    out.attr.cur_qp_state = uint32_t(qp.state);
    out.attr.cap = qp.spec.cap;
    out.attr.sq_draining = qp.sqd_pending ? 1 : 0;
    // once messages flow, the PSNs that query_qp shows are those that come next
    out.attr.rq_psn = qp.responder.expected.value();
    out.attr.sq_psn = qp.requester.next.value();
    out.counters = qp.counters;
    out.send_psn = qp.requester.next;
    out.unacked_psn = qp.requester.una;
    out.expected_psn = qp.responder.expected;
    out.send_queued = qp.requester.fetched - qp.requester.tail;
    out.recv_posted = recv_available(qp);
}

void detach(Context& ctx, Qp& qp) {
    ctx.wheel.cancel(qp.timer);
    deactivate(ctx, qp);
    if (qp.tags != nullptr) forget_tagged(qp);
}

}  // namespace roci::qp
