// The functions that execute the commands of the conductor (rocid's control thread), one function per operation. The engine's own
// thread calls these functions between rounds. While this thread sleeps, the conductor's thread may call the functions of
// commands for which is_quiet() returns true.
#include <cerrno>

#include "engine/impl.hpp"
#include "qp/attributes.hpp"
#include "qp/reorder.hpp"

namespace roci::engine {
namespace {

using Impl = Engine::Impl;

void run(Impl& e, AttachSession& c) { c.error = e.sessions.attach(e.ctx, {c.session, c.user, c.rate}, c.doorbells) ? 0 : ENOMEM; }
void run(Impl& e, DetachSession& c) { e.sessions.detach(e.ctx, c.session); }
/// Adds the QP to its session, so that doorbells of the session activate the QP. Returns 0 or an errno.
int join_session(Impl& e, qp::Qp& qp) {
    Session* s = e.sessions.find(qp.owner.session);
    e.sessions.enter(e.ctx, s, qp);
    if (s == nullptr) return EINVAL;
    const uint32_t slot = qp.owner.handle;
    if (slot >= s->slots.size()) s->slots.resize(slot + 1);
    s->slots[slot] = &qp;
    return 0;
}
void run(Impl& e, AddQp& c) {
    if (!qp::attach(e.ctx, *c.qp)) {
        c.error = ENOMEM;
        return;
    }
    *c.at = e.ctx.now;
    c.error = join_session(e, *c.qp);
    if (c.error != 0) qp::detach(e.ctx, *c.qp);
}
bool owes_responses(const qp::Qp& qp) { return qp.state != qp::State::err && qp::has_responses(qp); }
/// Sends outstanding responses before a QP is modified or removed. A program may destroy its QP as soon as it has the
/// completion of a message, but the sender of the message still needs the acknowledgement.
void acknowledge_first(Impl& e, qp::Qp& qp) {
    if (owes_responses(qp)) qp::send_responses(e.ctx, qp, e.config.qp_quantum);
}
void run(Impl& e, ModifyQp& c) {
    if (!c.change->trial) acknowledge_first(e, *c.qp);  // sending a NAK may move the QP to ERR
    *c.step = qp::check_step(c.qp->spec.type, c.qp->state, *c.change);
    c.step->at = e.ctx.now;
    if (c.step->refusal != qp::Refusal::none) {
        c.error = EINVAL;
        return;
    }
    if (c.change->trial) return;
    c.error = qp::apply_change(e.ctx, *c.qp, *c.change, c.step->to);
}
void run(Impl& e, QueryQp& c) {
    qp::snapshot(*c.qp, *c.snapshot);
    c.snapshot->limit = qp::limit_of(e.ctx, *c.qp);
    c.snapshot->open_window = cc::window(c.qp->requester.congestion, e.ctx.limits(*c.qp));
    if (c.journal == nullptr) return;
    c.snapshot->habits = qp::habits_of(*c.qp);
    if (c.qp->journal != nullptr) *c.journal = *c.qp->journal;
}
void leave_session(Impl& e, const qp::Qp& qp) {
    Session* s = e.sessions.find(qp.owner.session);
    if (s != nullptr && qp.owner.handle < s->slots.size()) s->slots[qp.owner.handle] = nullptr;
}
void run(Impl& e, MoveQp& c) {
    leave_session(e, *c.qp);
    c.qp->owner = *c.owner;
    (void)join_session(e, *c.qp);  // fails only if the session was removed; then no doorbell is rung for the QP
}
/// Fails with EAGAIN while a worker of slow memory may still write the QP's buffers. The conductor then repeats the command
/// later. If `force` is set, removes the QP at once. The conductor sets `force` when it reclaims the objects of a session.
void run(Impl& e, RemoveQp& c) {
    acknowledge_first(e, *c.qp);
    const bool again = c.qp->slow != nullptr && c.qp->slow->closing;
    if (!again) e.send_last_requests(*c.qp);
    if (!c.force && !qp::close_slow(e.ctx, *c.qp)) {
        c.error = EAGAIN;
        return;
    }
    e.departed.add(*c.qp, e.ctx.now);
    qp::detach(e.ctx, *c.qp);
    leave_session(e, *c.qp);
}
/// While several users share the engine, the QP waits for its turns, so that no user gets further frames by this command.
void run(Impl& e, SendPosted& c) {
    if (!e.shared_by_users()) e.send_last_requests(*c.qp);
    c.more = e.has_last_requests(*c.qp);
}
qp::Srq** tag_slot(Impl& e, const qp::Srq& srq) {
    Session* s = e.sessions.find(srq.spec.session);
    if (s == nullptr) return nullptr;
    const uint32_t index = srq.spec.tags.slot - abi::kFirstTagSlot;
    if (index >= s->tag_srqs.size()) s->tag_srqs.resize(index + 1);
    return &s->tag_srqs[index];
}
/// Adds a tag matching SRQ to its session. Does nothing for other SRQs, because only tag matching SRQs have doorbells.
void run(Impl& e, AddSrq& c) {
    if (c.srq->tags == nullptr) return;
    qp::Srq** slot = tag_slot(e, *c.srq);
    if (slot != nullptr) *slot = c.srq;
    c.error = slot != nullptr ? 0 : EINVAL;
}
void remove_tags(Impl& e, const qp::Srq& srq) {
    qp::Srq** slot = srq.tags != nullptr ? tag_slot(e, srq) : nullptr;
    if (slot != nullptr) *slot = nullptr;
}
void run(Impl& e, ModifySrq& c) {
    c.srq->limit = c.limit;
    qp::check_srq_limit(e.ctx, *c.srq);
}
void run(Impl&, QuerySrq& c) { c.limit = c.srq->limit; }
void run(Impl&, ResizeSrq& c) {
    if (!rings::move_queue(c.srq->rq, c.srq->cursor, *c.new_queue)) c.error = EINVAL;
}
/// Removes an SRQ. If an XRC target QP holds a receive WQE of the SRQ, the WQE is dropped and the QP enters the error state.
void run(Impl& e, RemoveSrq& c) {
    remove_tags(e, *c.srq);
    if (c.srq->spec.xrcd == 0) return;  // only an XRC SRQ can still be in use by QPs
    e.sessions.for_each([&](const Session& s) {
        for (qp::Qp* qp : s.slots) {
            if (qp == nullptr || !qp->responder.recv.held || qp->responder.recv.srq != c.srq) continue;
            qp->responder.recv.held = false;
            qp::enter_error(e.ctx, *qp);
        }
    });
}
void run(Impl& e, ResizeCq& c) {
    if (!rings::move_lane(c.cq->lanes[e.config.index], c.new_lane, c.consumer)) c.error = EINVAL;
}
void run(Impl& e, SendFrame& c) { c.error = e.send_other(*c.frame); }
/// If the port is full, the datagram is lost as if the network had dropped it.
void run(Impl& e, const SendGsi& c) { (void)e.send_management(c.datagram); }
void run(Impl&, const Barrier&) {}

template <class Other>
bool quiet(const Impl&, const Other&) {
    return false;
}
bool quiet(const Impl&, const AddQp&) { return true; }
bool quiet(const Impl&, const QueryQp&) { return true; }
bool quiet(const Impl&, const QuerySrq&) { return true; }
/// Kept frames return to their port, which only the engine's thread may use.
bool quiet(const Impl& e, const RemoveQp& c) {
    return !owes_responses(*c.qp) && !e.has_last_requests(*c.qp) && qp::kept_frames(*c.qp) == 0;
}
bool quiet(const Impl& e, const SendPosted& c) { return !e.has_last_requests(*c.qp); }

}  // namespace

bool Engine::is_quiet(const Command& command) const {
    bool result = false;
    visit(command, [&](const auto& c) { result = quiet(*impl_, c); });
    return result;
}

void Engine::execute(const Command& command, Nanos now, bool asleep) {
    if (impl_->started && !asleep) impl_->note_gap(now);
    impl_->ctx.now = now;
    impl_->lent = asleep;
    impl_->counters.add(Counter::commands);
    impl_->pipeline.forget();
    visit(command, [this](auto& c) { run(*impl_, c); });
    qp::notify_all(impl_->ctx);
}

/// Drops the references to prefetched QPs and to CQs without QPs, because these QPs and CQs may be freed soon. The CQs are
/// removed from the engine's lists. If such a CQ gets QPs again instead of being freed, the flags of this engine's lane (part) of
/// the CQ must show that no list contains the CQ. The removal would lose an event that moderation delays, so the event is sent
/// now.
void Engine::let_go() {
    Impl& e = *impl_;
    e.pipeline.forget();
    std::erase_if(e.ctx.dirty, [&](rings::Cq* cq) {
        if (cq->use_count.load() != 0) return false;
        rings::CqLane& lane = cq->lanes[e.config.index];
        rings::notify(*cq, lane.solicited, e.events);
        lane.dirty = lane.solicited = false;
        lane.unannounced = 0;
        return true;
    });
    std::erase_if(e.ctx.unsettled, [&](rings::Cq* cq) {
        if (cq->use_count.load() != 0) return false;
        cq->lanes[e.config.index].unsettled = false;
        return true;
    });
}

bool Engine::keeps_cqs() const { return !impl_->ctx.dirty.empty() || !impl_->ctx.unsettled.empty(); }

void Engine::count_waited_command() { impl_->counters.add(Counter::commands_waited); }

}  // namespace roci::engine
