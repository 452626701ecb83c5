// Creation, state transitions and snapshots of QPs, and creation of SRQs. check_step (qp/attributes.hpp) has decided that a
// transition is legal. This file applies the attributes and the new state to the QP.
#include <bit>
#include <cerrno>
#include <new>

#include "qp/attributes.hpp"
#include "qp/reorder.hpp"
#include "qp/roles.hpp"

namespace roci::qp {
namespace {

void set_mtu_bytes(Qp& qp, uint32_t bytes) {
    qp.mtu = bytes;
    qp.mtu_shift = uint8_t(std::countr_zero(bytes));
}
void set_sq_psn(Qp& qp, const Change& c) { qp.requester.window.start(Psn(c.attr.sq_psn)); }
/// Sets the rights of remote requests. If atomics are permitted, allocates memory for their results, because replays need the
/// results.
void set_access(Qp& qp, uint32_t access) {
    qp.access = access;
    AtomicResults& results = qp.responder.atomics;
    if ((access & mem::kRemoteAtomic) != 0 && results.size == 0) results.resize(qp.max_dest_rd_atomic + 1u);
}
void set_dest_reads(Qp& qp, const Change& c) {
    qp.max_dest_rd_atomic = c.attr.max_dest_rd_atomic;
    qp.responder.jobs.resize(std::max(2u * c.attr.max_dest_rd_atomic, 1u));
    qp.responder.atomics.resize(0);
    set_access(qp, qp.access);
}

/// One attribute, and the function that applies the attribute to the QP. IBV_QP_STATE and IBV_QP_CUR_STATE have no row, because
/// enter() and check_step() handle them. Other attributes without a row concern only the conductor (rocid's control thread).
struct Setter {
    uint32_t bit;
    void (*apply)(Qp&, const Change&);
};
constexpr Setter kSetters[] = {
    {kAttrEnSqdAsyncNotify, [](Qp& q, const Change& c) { q.notify_drained = c.attr.en_sqd_async_notify != 0; }},
    {kAttrAccessFlags, [](Qp& q, const Change& c) { set_access(q, c.attr.qp_access_flags); }},
    {kAttrQkey, [](Qp& q, const Change& c) { q.qkey = c.attr.qkey; }},
    {kAttrAv, [](Qp& q, const Change& c) { q.path = c.path; }},
    {kAttrPathMtu, [](Qp& q, const Change& c) { set_mtu_bytes(q, mtu_bytes(c.attr.path_mtu)); }},
    {kAttrTimeout, [](Qp& q, const Change& c) { q.requester.ack_timeout = ack_timeout(c.attr.timeout); }},
    {kAttrRetryCount, [](Qp& q, const Change& c) { q.retry_cnt = q.requester.retries_left = c.attr.retry_cnt; }},
    {kAttrRnrRetry, [](Qp& q, const Change& c) { q.rnr_retry = q.requester.rnr_retries_left = c.attr.rnr_retry; }},
    {kAttrRqPsn, [](Qp& q, const Change& c) { q.responder.sequence.start(Psn(c.attr.rq_psn)); }},
    {kAttrMaxRdAtomic, [](Qp& q, const Change& c) { q.max_rd_atomic = c.attr.max_rd_atomic; }},
    {kAttrMinRnrTimer, [](Qp& q, const Change& c) { q.min_rnr_timer = c.attr.min_rnr_timer; }},
    {kAttrSqPsn, set_sq_psn},
    {kAttrMaxDestRdAtomic, set_dest_reads},
    {kAttrDestQpn, [](Qp& q, const Change& c) { q.dest = Qpn{c.attr.dest_qp_num}; }},
};

/// Restores the protocol state that the QP had after its creation. The client restarts its rings at index 0 at the same time.
void reset(Context& ctx, Qp& qp) {
    ctx.wheel.cancel(qp.timer);
    deactivate(ctx, qp);
    if (qp.tags != nullptr) forget_tagged(qp);
    forget_kept(ctx, qp);
    drop_slow(ctx, qp);
    qp.requester.queue.reset();
    qp.requester = {.queue = qp.requester.queue};
    qp.repair_time = {};
    qp.send_times.clear();
    qp.read_cuts.clear();
    auto sges = std::move(qp.responder.recv.sges);
    qp.responder = Responder{};
    qp.responder.recv.sges = std::move(sges);
    qp.established = qp.sqd_pending = qp.notify_drained = qp.has_work = qp.answers = false;
    qp.held_rounds = 0;
    qp.qkey = 0;
    qp.access = 0;
    qp.rq_cursor = {};
    if (qp.spec.sq.depth != 0) std::atomic_ref(qp.spec.sq.shared->idle).store(1, std::memory_order_release);
    if (qp.spec.rq.depth == 0) return;
    std::atomic_ref(qp.spec.rq.shared->producer).store(0, std::memory_order_relaxed);
    std::atomic_ref(qp.spec.rq.shared->ring).store(0, std::memory_order_release);
}

bool reliable(Type t) { return t == Type::rc || t == Type::xrc_send || t == Type::xrc_recv; }

void start_congestion_control(Context& ctx, Qp& qp) {
    const io::PortAddresses* port = ctx.shared->addresses.find(qp.spec.port);
    const auto policy = port != nullptr ? port->congestion : cc::Policy::fixed_window;
    cc::start(qp.requester.congestion, qp.adaptation, ctx.limits(qp), policy, qp.mtu);
}

void enter(Context& ctx, Qp& qp, State next) {
    if (next == State::reset) {
        reset(ctx, qp);
        qp.state = State::reset;
        if (qp.journal != nullptr) note(ctx, qp, Happening::state, {}, uint8_t(State::reset));
        return;
    }
    if (next == State::err) return enter_error(ctx, qp);
    if (next == State::rtr && qp.responder.jobs.size == 0) set_dest_reads(qp, Change{});
    if (next == State::rtr && reliable(qp.spec.type)) start_congestion_control(ctx, qp);
    if (next == State::rtr && qp.spec.type == Type::ud) {  // a datagram may be as long as the port permits
        const io::PortAddresses* port = ctx.shared->addresses.find(qp.spec.port);
        set_mtu_bytes(qp, port != nullptr ? port->mtu_bytes : 1024);
    }
    qp.sqd_pending = next == State::sqd && qp.state == State::rts;
    qp.state = next;
    if (qp.journal != nullptr) note(ctx, qp, Happening::state, {}, uint8_t(next));
    activate_requester(ctx, qp);
    report_drained(ctx, qp);
}

}  // namespace

Pool::Pool(ChunkSource& chunks) : slab_(chunks, sizeof(Qp)) {}

Pool::Handle Pool::create(const Spec& spec, const Owner& owner) {
    void* block = slab_.take();
    if (block == nullptr) return {};
    Handle qp(new (block) Qp{.spec = spec, .owner = owner}, {this});
    qp->timer.owner = qp.get();
    if (spec.sq.depth != 0) std::atomic_ref(spec.sq.shared->idle).store(1, std::memory_order_release);
    // an XRC target may use any SRQ of its domain
    const uint32_t recv_sges = spec.type == Type::xrc_recv ? kMaxRecvSge
                               : spec.srq != nullptr       ? spec.srq->rq.max_sge
                                                           : spec.rq.max_sge;
    const bool tags = spec.srq != nullptr && spec.srq->tags != nullptr;
    if (tags) qp->tags = std::make_unique<TagQp>();
    qp->responder.recv.sges.make_room(std::max(recv_sges, tags ? abi::kMaxTagSge : 1u));
    return qp;
}

void Pool::free(Qp* qp) {
    qp->~Qp();
    slab_.give_back(qp);
}

Srq* create_srq(const SrqSpec& spec, const rings::RqView& queue) {
    std::unique_ptr<Srq> srq(new Srq{.spec = spec, .rq = queue});
    if (spec.tags.shared != nullptr) srq->tags = std::make_unique<TagSrq>(srq->spec.tags);
    return srq.release();
}

void free(Srq* srq) { delete srq; }

const Spec& spec_of(const Qp& qp) { return qp.spec; }
const Owner& owner_of(const Qp& qp) { return qp.owner; }
const SrqSpec& spec_of(const Srq& srq) { return srq.spec; }
const rings::RqView& queue_of(const Srq& srq) { return srq.rq; }

namespace {

/// Flushes the requests that were posted in SQE, because none of them may be sent after the return to RTS. Returns false if
/// requests remain; the QP's next turns (run_queue.hpp) flush them.
bool flushed(Context& ctx, Qp& qp) {
    flush_queues(ctx, qp);
    if (qp.requester.queue.empty() && !posted(qp)) return true;
    activate(ctx, qp);
    return false;
}

}  // namespace

int apply_change(Context& ctx, Qp& qp, const Change& change, State next) {
    const bool moves = (change.mask & kAttrState) != 0;
    if (moves && next == State::reset) {
        if (!close_slow(ctx, qp)) return EAGAIN;
        enter(ctx, qp, State::reset);
        return 0;
    }
    if (moves && next == State::rts && qp.state == State::sqe) {
        if (!flushed(ctx, qp)) return EAGAIN;
        if (qp.state != State::sqe) return EAGAIN;  // the flush overran a CQ: the QP is in ERR, and the next call is refused
    }
    for (const Setter& s : kSetters)
        if ((change.mask & s.bit) != 0) s.apply(qp, change);
    if (moves) enter(ctx, qp, next);
    return 0;
}

void snapshot(const Qp& qp, Snapshot& out) {
    out.state = qp.state;
    out.sq_draining = qp.sqd_pending;
    out.counters = qp.counters;
    out.send_psn = qp.requester.window.next();
    out.unacked_psn = qp.requester.window.acked();
    out.expected_psn = qp.responder.sequence.expected();
    out.repeat = qp.requester.repair.mode;
    out.reports = qp.reorder != nullptr && qp.reorder->reports.peer == LossReports::Peer::reports;
    out.probes = qp.requester.probes;
    out.round_trip = qp.requester.round_trip.smoothed();
    out.policy = qp.requester.congestion.policy;
    out.window = uint16_t(cc::packets(qp.requester.congestion));
    out.rate = cc::rate(qp.requester.congestion, qp.adaptation);
    out.send_queued = qp.requester.queue.length();
    out.recv_posted = recv_available(qp);
    out.kept = kept_frames(qp);
}

bool last_words(const Qp& qp, Snapshot& now, Journal& journal) {
    if (qp.journal == nullptr) return false;
    now.state = qp.state;
    now.counters = qp.counters;
    journal = *qp.journal;
    return true;
}

bool attach(Context& ctx, Qp& qp) {
    if (qp.spec.sq.depth == 0) return true;
    const uint32_t bytes = uint32_t(sizeof(SendRecord)) + qp.spec.sq.stride;
    Slab& records = ctx.records.try_emplace(bytes, ctx.shared->chunks, bytes).first->second;
    if (!records.reserve(qp.spec.sq.depth)) return false;
    qp.requester.queue.attach(&records);
    return true;
}

void detach(Context& ctx, Qp& qp) {
    ctx.wheel.cancel(qp.timer);
    deactivate(ctx, qp);
    if (qp.tags != nullptr) forget_tagged(qp);
    forget_kept(ctx, qp);
    drop_slow(ctx, qp);
    if (!qp.requester.queue.attached()) return;
    qp.requester.queue.drop_all();
    qp.requester.queue.detach()->unreserve(qp.spec.sq.depth);
}

}  // namespace roci::qp
