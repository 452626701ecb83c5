// The conductor's commands, with a row per kind. The engine's own thread executes them between rounds.
#include <cerrno>

#include "engine/impl.hpp"

namespace roci::engine {
namespace {

using Impl = Engine::Impl;

void attach_session(Impl& e, Command& c) { e.sessions.push_back({c.session, c.doorbells, {}}); }
void detach_session(Impl& e, Command& c) {
    std::erase_if(e.sessions, [&](const Session& s) { return s.id == c.session; });
}
void join_session(Impl& e, Command& c) {
    Session* s = e.session(c.qp->spec.session);
    if (s == nullptr) {
        c.error = EINVAL;
        return;
    }
    if (c.qp->spec.slot >= s->slots.size()) s->slots.resize(c.qp->spec.slot + 1);
    s->slots[c.qp->spec.slot] = c.qp;
}
void add_qp(Impl& e, Command& c) {
    if (!qp::attach(e.ctx, *c.qp)) {
        c.error = ENOMEM;
        return;
    }
    join_session(e, c);
    if (c.error != 0) qp::detach(e.ctx, *c.qp);
}
/// Sends outstanding responses before a QP ends. A program may destroy its QP as soon as it has the completion of a message, but
/// the sender still needs the acknowledgement.
void acknowledge_first(Impl& e, qp::Qp& qp) {
    if (qp.state != qp::State::err && qp::has_responses(qp)) qp::send_responses(e.ctx, qp, e.config.qp_quantum);
}
/// Does nothing if the QP is not in the state that the conductor expects (snapshot).
void modify_qp(Impl& e, Command& c) {
    if (c.snapshot != nullptr) {
        const qp::State believed = c.snapshot->state;
        qp::snapshot(*c.qp, *c.snapshot);
        if (c.snapshot->state != believed) {
            c.error = ESTALE;
            return;
        }
    }
    acknowledge_first(e, *c.qp);
    c.error = qp::apply_change(e.ctx, *c.qp, *c.change);
}
void query_qp(Impl&, Command& c) { qp::snapshot(*c.qp, *c.snapshot); }
void query_qps(Impl& e, Command& c) {
    for (const QpQuery& q : c.queries) {
        qp::snapshot(*q.qp, *q.out);
        q.out->limit = qp::limit_of(e.ctx, *q.qp);
        q.out->open_window = cc::window(q.qp->requester.congestion, e.ctx.congestion);
        if (q.journal == nullptr) continue;
        q.out->habits = qp::habits_of(*q.qp);
        if (q.qp->journal != nullptr) *q.journal = *q.qp->journal;
    }
}
void leave_session(Impl& e, const qp::Qp& qp) {
    Session* s = e.session(qp.spec.session);
    if (s != nullptr && qp.spec.slot < s->slots.size()) s->slots[qp.spec.slot] = nullptr;
}
void move_qp(Impl& e, Command& c) {
    leave_session(e, *c.qp);
    qp::set_owner(c.qp->spec, *c.owner);
    join_session(e, c);
}
/// EAGAIN: a worker may still write the QP's buffers. Its owner waits for that; whoever reclaims a session does not (`force`).
void remove_qp(Impl& e, Command& c) {
    acknowledge_first(e, *c.qp);
    if (!c.force && !qp::close_slow(e.ctx, *c.qp)) {
        c.error = EAGAIN;
        return;
    }
    qp::detach(e.ctx, *c.qp);
    leave_session(e, *c.qp);
}
qp::Srq** tag_slot(Impl& e, const qp::Srq& srq) {
    Session* s = e.session(srq.spec.session);
    if (s == nullptr) return nullptr;
    const uint32_t index = srq.spec.tags.slot - abi::kFirstTagSlot;
    if (index >= s->tag_srqs.size()) s->tag_srqs.resize(index + 1);
    return &s->tag_srqs[index];
}
/// Only tag matching SRQs have doorbells.
void add_srq(Impl& e, Command& c) {
    if (c.srq->tags == nullptr) return;
    qp::Srq** slot = tag_slot(e, *c.srq);
    if (slot != nullptr) *slot = c.srq;
    c.error = slot != nullptr ? 0 : EINVAL;
}
void remove_tags(Impl& e, const qp::Srq& srq) {
    qp::Srq** slot = srq.tags != nullptr ? tag_slot(e, srq) : nullptr;
    if (slot != nullptr) *slot = nullptr;
}
void modify_srq(Impl& e, Command& c) {
    c.srq->limit = c.srq_limit;
    qp::check_srq_limit(e.ctx, *c.srq);
}
void query_srq(Impl&, Command& c) { c.srq_limit = c.srq->limit; }
void resize_srq(Impl&, Command& c) {
    if (!rings::move_queue(c.srq->rq, *c.new_queue)) c.error = EINVAL;
}
/// Removes an SRQ. If an XRC target is receiving a message for it, the receive and the message are dropped.
void remove_srq(Impl& e, Command& c) {
    remove_tags(e, *c.srq);
    if (c.srq->spec.xrcd == 0) return;  // others have no QPs any more
    for (Session& s : e.sessions) {
        for (qp::Qp* qp : s.slots) {
            if (qp == nullptr || !qp->responder.recv.held || qp->responder.recv.srq != c.srq) continue;
            qp->responder.recv.held = false;
            qp::enter_error(e.ctx, *qp);
        }
    }
}
void resize_cq(Impl& e, Command& c) {
    if (!rings::move_lane(c.cq->lanes[e.config.index], c.new_lane, c.consumer)) c.error = EINVAL;
}
/// After this the conductor may free objects that it has removed from the tables, because the engine has no references to them.
/// Also drops unused CQs that still wait for room in the event ring, because they are about to be freed.
void fence(Impl& e, Command&) {
    const auto unused = [](const rings::Cq* cq) { return cq->use_count.load() == 0; };
    std::erase_if(e.ctx.dirty, unused);
    std::erase_if(e.ctx.unsettled, unused);
}
void send_gsi(Impl& e, Command& c) { c.error = e.send_management(*c.gsi); }
void send_frame(Impl& e, Command& c) { c.error = e.send_other(*c.frame); }

struct Row {
    Command::Kind kind;
    void (*run)(Impl&, Command&);
};
constexpr Row kCommands[] = {
    {Command::Kind::attach_session, attach_session},
    {Command::Kind::detach_session, detach_session},
    {Command::Kind::add_qp, add_qp},
    {Command::Kind::modify_qp, modify_qp},
    {Command::Kind::query_qp, query_qp},
    {Command::Kind::query_qps, query_qps},
    {Command::Kind::move_qp, move_qp},
    {Command::Kind::remove_qp, remove_qp},
    {Command::Kind::add_srq, add_srq},
    {Command::Kind::modify_srq, modify_srq},
    {Command::Kind::query_srq, query_srq},
    {Command::Kind::resize_srq, resize_srq},
    {Command::Kind::remove_srq, remove_srq},
    {Command::Kind::resize_cq, resize_cq},
    {Command::Kind::fence, fence},
    {Command::Kind::send_gsi, send_gsi},
    {Command::Kind::send_frame, send_frame},
};
constexpr bool in_order() {
    for (size_t i = 0; i < std::size(kCommands); ++i)
        if (size_t(kCommands[i].kind) != i) return false;
    return true;
}
static_assert(in_order() && std::size(kCommands) == size_t(Command::Kind::send_frame) + 1);

}  // namespace

Session* Engine::Impl::session(uint32_t id) {
    for (Session& s : sessions)
        if (s.id == id) return &s;
    return nullptr;
}

void Engine::Impl::run(Command& command) {
    counters.add(Counter::commands);
    pipeline.forget();
    kCommands[size_t(command.kind)].run(*this, command);
}

void Engine::execute(Command& command, Nanos now) {
    impl_->ctx.now = now;
    impl_->run(command);
    qp::notify_all(impl_->ctx);
    command.done.store(true, std::memory_order_release);
}

}  // namespace roci::engine
