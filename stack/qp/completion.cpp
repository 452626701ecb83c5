// Completions, events and errors. The work requests of a queue complete in order, and each completes once. In ERR, all requests
// in the QP's own queues are flushed (IBA 10.3.1.7, 11.6.2).
#include "qp/receive_source.hpp"
#include "qp/reorder.hpp"
#include "wire/ip_checksum.hpp"

namespace roci::qp {
namespace {

using abi::WcStatus;

/// Time after which a store of the client is certainly visible to the engine, ns. A store leaves its core within microseconds.
constexpr Nanos kLateReceives = 1'000'000;

/// Values of the completion's service level field. Ethernet has no service level. Like RoCE NICs, rocid reports in this field
/// whether the 40 bytes before a datagram contain an IPv4 or IPv6 header. UCX reads the field.
constexpr uint8_t kSlIpv6 = 1, kSlIpv4 = 2;

/// Sends an event. If the event ring is full, stores the event for later. First writes all completions to the CQs, so that a
/// program that receives the event finds the completions.
void send_event(Context& ctx, const io::Event& e) {
    ctx.completions.write_out();
    if (!ctx.late_events.empty() || !ctx.events->push(e)) ctx.late_events.push_back(e);
}

/// Adds an entry to a CQ. Returns true if the entry was discarded, because the CQ is full or has overrun before. A CQ remains
/// in error after an overrun (IBA 11.6.3.2). The first overrun raises CQ_ERR.
bool discarded(Context& ctx, rings::Cq& cq, abi::Cqe& e, bool solicited) {
    e.timestamp = ctx.now;
    const bool was_dead = cq.dead.load(std::memory_order_relaxed);
    if (rings::push(cq, ctx.engine, e, ctx.completions) == rings::PushResult::overrun) {
        if (!was_dead)
            send_event(ctx, {io::Event::Kind::async, cq.session, uint32_t(abi::AsyncEvent::cq_err), cq.handle, cq.generation});
        return true;
    }
    rings::CqLane& lane = cq.lanes[ctx.engine];
    lane.solicited = lane.solicited || solicited || e.status != WcStatus::success;
    if (lane.unannounced++ == 0) lane.since = ctx.now;
    if (lane.dirty) return false;
    lane.dirty = true;
    ctx.dirty.push_back(&cq);
    return false;
}

void wake_sleeper(Context& ctx, rings::Cq& cq) {
    rings::CqLane& lane = cq.lanes[ctx.engine];
    if (rings::take_sleeper(cq, lane)) ctx.sleepers.push_back({&cq.shared->sleeping, &lane});
}

void push(Context& ctx, Qp& qp, rings::Cq* cq, abi::Cqe& e, bool solicited) {
    if (cq == nullptr) return;
    e.qpn = qp.spec.qpn.value;
    // Every QP that loses a completion enters ERR, not only the QP whose entry has overrun the CQ.
    if (!discarded(ctx, *cq, e, solicited) || qp.state == State::err) return;
    note(ctx, qp, Happening::overrun, {}, 0, abi::Reason::cq_overrun);
    raise(ctx, qp, abi::AsyncEvent::qp_fatal);
    enter_error(ctx, qp);
}

/// Limit of flushed work requests per queue and call, because other QPs wait meanwhile.
constexpr uint32_t kFlushed = 64;

/// Flushes at most kFlushed posted work requests. Afterwards no packet is outstanding.
void flush_send(Context& ctx, Qp& qp) {
    Requester& rq = qp.requester;
    for (uint32_t n = 0; n < kFlushed; ++n) {
        if (rq.queue.empty() && !fetch(qp, 1)) break;
        complete_send(ctx, qp, WcStatus::wr_flush_err);
    }
    rq.queue.forget_requests();
    rq.queue.rewind(rq.window.acked());
    rq.window.abandon();
    rq.blocked = false;
}

void flush_recv(Context& ctx, Qp& qp) {
    if (qp.responder.recv.held) complete_recv(ctx, qp, nullptr, WcStatus::wr_flush_err, 0);
    if (qp.spec.srq != nullptr || qp.spec.rq.depth == 0) return;
    for (uint32_t n = 0; n < kFlushed && take_recv(ctx, qp, nullptr) != TakeRecv::empty; ++n) {
        if (!qp.responder.recv.held) return;  // the queue's indices are invalid, so there is no receive to flush
        complete_recv(ctx, qp, nullptr, WcStatus::wr_flush_err, 0);
    }
}

}  // namespace

namespace {

uint32_t vendor_error(WcStatus status, abi::Reason reason) {
    return uint32_t(status == WcStatus::wr_flush_err ? abi::Reason::flushed : reason);
}

void count_error(Context& ctx, Qp& qp, WcStatus status, uint64_t DeviceCounters::*errors, uint64_t DeviceCounters::*flushed) {
    bump(ctx.device(qp).*errors);
    if (status == WcStatus::wr_flush_err) bump(ctx.device(qp).*flushed);
}

/// Returns the device counter of the requests that failed with this status.
uint64_t DeviceCounters::*failure(WcStatus status) {
    using D = DeviceCounters;
    struct Row {
        WcStatus status;
        uint64_t D::*counter;
    };
    static constexpr Row kRows[] = {{WcStatus::retry_exc_err, &D::retry_exceeded},
                                    {WcStatus::rnr_retry_exc_err, &D::rnr_retry_exceeded},
                                    {WcStatus::rem_access_err, &D::remote_access_errors},
                                    {WcStatus::rem_inv_req_err, &D::remote_invalid_requests},
                                    {WcStatus::rem_inv_rd_req_err, &D::remote_invalid_requests},
                                    {WcStatus::rem_op_err, &D::remote_operation_errors}};
    for (const Row& r : kRows)
        if (r.status == status) return r.counter;
    return &D::local_errors;
}

}  // namespace

void ClientQueue::report(Context& ctx, Qp& qp, const SendRecord& r, WcStatus status, abi::Reason reason) {
    ROCI_STAGE(cqe);
    ctx.latest = 2 * qp.spec.qpn.value + 1;
    abi::Cqe e{};
    e.wr_id = wqe(r).wr_id;
    e.wqe_index = qp.requester.queue.tail();
    e.status = status;
    e.opcode = r.wc;
    e.queue = abi::kCqeSend;
    e.byte_len = r.length;
    e.vendor_err = vendor_error(status, reason);
    push(ctx, qp, qp.spec.send_cq, e, false);
}

void complete_send(Context& ctx, Qp& qp, WcStatus status, abi::Reason reason) {
    const SendRecord& r = *qp.requester.queue.oldest();
    if (status != WcStatus::success) [[unlikely]]
        count_error(ctx, qp, status, &DeviceCounters::tx_errors, &DeviceCounters::tx_flushed);
    if (status != WcStatus::success || r.signaled) report(ctx, qp, r, status, reason);
    qp.requester.queue.drop_oldest();
}

void complete_recv(Context& ctx, Qp& qp, const wire::Packet* packet, WcStatus status, uint32_t byte_len, abi::Reason reason) {
    ROCI_STAGE(cqe);
    if (status != WcStatus::success) [[unlikely]]
        count_error(ctx, qp, status, &DeviceCounters::rx_errors_completed, &DeviceCounters::rx_flushed);
    RecvWork& work = qp.responder.recv;
    abi::Cqe e{};
    e.wr_id = work.wr_id;
    e.status = status;
    e.opcode = abi::WcOpcode::recv;
    e.queue = work.srq != nullptr ? abi::kCqeSrq : abi::kCqeRecv;
    e.srq_handle = work.srq != nullptr ? work.srq->spec.handle : abi::kNoHandle;
    e.byte_len = byte_len;
    e.vendor_err = vendor_error(status, reason);
    e.src_qp = qp.dest.value;
    if (packet != nullptr) {
        if (packet->info->has(wire::kWrite)) e.opcode = abi::WcOpcode::recv_rdma_with_imm;
        if (packet->info->has(wire::kDeth)) {
            e.src_qp = packet->src_qp.value;
            e.wc_flags |= abi::kWcGrh;
            if (wire::ip_checksums_hold(packet->payload, packet->payload_length)) e.wc_flags |= abi::kWcIpCsumOk;
            e.sl = packet->ipv6 ? kSlIpv6 : kSlIpv4;
        }
        if (packet->info->has(wire::kImmDt)) {
            e.wc_flags |= abi::kWcWithImm;
            e.imm_or_inv = packet->imm_be;
        }
        if (packet->info->has(wire::kIeth)) {
            e.wc_flags |= abi::kWcWithInv;
            e.imm_or_inv = packet->invalidate.value;
        }
    }
    work.held = false;
    describe(qp, e);
    rings::Cq* cq = work.srq != nullptr && work.srq->spec.cq != nullptr ? work.srq->spec.cq : qp.spec.recv_cq;
    push(ctx, qp, cq, e, packet != nullptr && packet->solicited);
}

void complete_tag(Context& ctx, const Srq& srq, Qp* qp, abi::Cqe& e, bool solicited) {
    ROCI_STAGE(cqe);
    e.queue = abi::kCqeTag;
    e.srq_handle = srq.spec.handle;
    if (qp != nullptr) return push(ctx, *qp, srq.spec.cq, e, solicited);
    if (srq.spec.cq != nullptr) discarded(ctx, *srq.spec.cq, e, solicited);
}

void raise(Context& ctx, Qp& qp, abi::AsyncEvent event) {
    send_event(ctx, {io::Event::Kind::async, qp.owner.session, uint32_t(event), qp.owner.handle, qp.owner.generation});
}

void raise_srq(Context& ctx, const Srq& srq, abi::AsyncEvent event) {
    send_event(ctx, {io::Event::Kind::async, srq.spec.session, uint32_t(event), srq.spec.handle, srq.spec.generation});
}

void report_drained(Context& ctx, Qp& qp) {
    const Requester& rq = qp.requester;
    // Started messages are finished first (IBA 10.3.1.5). The cursor may be at a message of which only a part was sent.
    if (!qp.sqd_pending || !rq.queue.at_oldest() || rq.queue.within_message() || rq.window.unanswered() != 0) return;
    qp.sqd_pending = false;
    if (qp.notify_drained) raise(ctx, qp, abi::AsyncEvent::sq_drained);
}

void fail_send(Context& ctx, Qp& qp, WcStatus status) {
    Requester& rq = qp.requester;
    bump(ctx.device(qp).*failure(status));
    const abi::Reason reason = note_failure(ctx, qp, status);
    if (!rq.queue.empty()) complete_send(ctx, qp, status, reason);
    if (!unacknowledged(qp.spec.type)) return enter_error(ctx, qp);
    note(ctx, qp, Happening::state, {}, uint8_t(State::sqe));
    qp.state = State::sqe;  // for UC and UD, only the send queue stops (IBA 10.3.1.6)
    activate(ctx, qp);
}

void enter_error(Context& ctx, Qp& qp) {
    if (qp.state == State::err) return;
    qp.state = State::err;
    note(ctx, qp, Happening::state, {}, uint8_t(State::err));
    ctx.wheel.cancel(qp.timer);
    qp.requester.deadlines.clear();
    Responder& rs = qp.responder;
    forget_kept(ctx, qp);
    forget_slow(ctx, qp);
    rs.jobs.count = 0;
    rs.in_message = false;
    rs.sequence.fall_silent();
    if (qp.spec.srq != nullptr) raise(ctx, qp, abi::AsyncEvent::qp_last_wqe_reached);
    // From now on the client rings the doorbell for every receive that it posts, so that the receive can be flushed. A receive
    // that the client is posting at this moment may come without a doorbell (abi/client_rings.hpp). A timer therefore checks the
    // queue again when the client's store is certainly visible.
    if (qp.spec.rq.depth != 0) {
        std::atomic_ref(qp.spec.rq.shared->ring).store(1, std::memory_order_seq_cst);
        ctx.wheel.arm(qp.timer, ctx.now + kLateReceives);
    }
    activate(ctx, qp);
}

void flush_queues(Context& ctx, Qp& qp) {
    if (flush_waits(qp)) return;
    flush_send(ctx, qp);
    if (qp.state == State::err) flush_recv(ctx, qp);
}

void notify_all(Context& ctx) {
    ROCI_STAGE(notify);
    ctx.completions.write_out();
    while (!ctx.late_events.empty() && ctx.events->push(ctx.late_events.front())) ctx.late_events.pop_front();
    size_t kept = 0;
    for (rings::Cq* cq : ctx.dirty) {
        rings::CqLane& lane = cq->lanes[ctx.engine];
        wake_sleeper(ctx, *cq);
        if (!lane.unsettled) {
            lane.unsettled = true;
            ctx.unsettled.push_back(cq);
        }
        if (rings::event_due(*cq, lane) <= ctx.now && rings::notify(*cq, lane.solicited, *ctx.events)) {
            lane.dirty = lane.solicited = false;
            lane.unannounced = 0;
        } else {
            ctx.dirty[kept++] = cq;
        }
    }
    ctx.dirty.resize(kept);
}

void settle_sleepers(Context& ctx) {
    if (ctx.unsettled.empty()) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (rings::Cq* cq : ctx.unsettled) {
        wake_sleeper(ctx, *cq);
        cq->lanes[ctx.engine].unsettled = false;
    }
    ctx.unsettled.clear();
}

}  // namespace roci::qp
