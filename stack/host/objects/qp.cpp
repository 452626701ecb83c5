// Creation, query and destruction of queue pairs. qp_modify.cpp contains modify_qp.
#include <algorithm>

#include "host/objects/handlers.hpp"
#include "host/objects/queue_memory.hpp"
#include "host/objects/tag_matching.hpp"
#include "qp/attributes.hpp"

namespace roci::host::objects {
namespace {

/// The queues that a QP of one type needs.
struct Needs {
    qp::Type type;
    bool send, receive;
};
constexpr Needs kNeeds[] = {
    {qp::Type::rc, true, true},        {qp::Type::uc, true, true},         {qp::Type::ud, true, true},
    {qp::Type::xrc_send, true, false}, {qp::Type::xrc_recv, false, false},
};

const Needs* needs_of(uint32_t type) {
    const auto found =
        std::find_if(std::begin(kNeeds), std::end(kNeeds), [=](const Needs& n) { return uint32_t(n.type) == type; });
    return found == std::end(kNeeds) ? nullptr : found;
}

Outcome check_cap(const abi::QpCap& cap, const Limits& l) {
    struct {
        const char* name;
        uint32_t asked, limit;
    } const rows[] = {
        {"max_send_wr", cap.max_send_wr, l.max_qp_wr},          {"max_recv_wr", cap.max_recv_wr, l.max_qp_wr},
        {"max_send_sge", cap.max_send_sge, l.max_sge},          {"max_recv_sge", cap.max_recv_sge, l.max_sge},
        {"max_inline_data", cap.max_inline_data, l.max_inline},
    };
    for (const auto& r : rows) {
        if (r.asked > r.limit) return fail(EINVAL, "{} {} is more than the device's limit of {}", r.name, r.asked, r.limit);
    }
    return done();
}

/// The objects to which the handles of the request refer.
struct Parts {
    Pd* pd = nullptr;
    Cq* send_cq = nullptr;
    Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
    Xrcd* xrcd = nullptr;
};

Outcome find_parts(Call& c, const abi::CreateQpRequest& in, const Needs& needs, Parts& p) {
    Session& s = c.session;
    // An XRC target has no PD, because the SRQ of each request determines the memory that the request may access (IBA annex
    // A14.2.3).
    if (needs.type == qp::Type::xrc_recv) return look_up(s.xrcds, in.xrcd, "XRC domain", p.xrcd);
    if (Outcome o = look_up(s.pds, in.pd, "PD", p.pd); o.failed()) return o;
    if (needs.send) {
        if (Outcome o = look_up(s.cqs, in.send_cq, "send CQ", p.send_cq); o.failed()) return o;
    }
    if (!needs.receive) return done();
    if (Outcome o = look_up(s.cqs, in.recv_cq, "receive CQ", p.recv_cq); o.failed()) return o;
    if (in.srq == abi::kNoHandle) return done();
    if (Outcome o = look_up(s.srqs, in.srq, "SRQ", p.srq); o.failed()) return o;
    if (p.srq->spec().xrcd != 0)
        return fail(EINVAL, "SRQ {} is an XRC SRQ: XRC targets reach it by its number, a QP cannot be created with it", in.srq);
    return check_tag_qp(in, *p.pd, p.srq);
}

Outcome check_request(Call& c, const abi::CreateQpRequest& in, const Needs*& needs) {
    needs = needs_of(in.type);
    if (needs == nullptr) return fail(EOPNOTSUPP, "QP type {} is not supported; RC, UC, UD, XRC_SEND and XRC_RECV are", in.type);
    if (in.create_flags != 0) return fail(EOPNOTSUPP, "QP creation flags {:#x} are not supported", in.create_flags);
    if (Outcome o = check_cap(in.cap, c.state.limits); o.failed()) return o;
    if (c.state.qpns.in_use() >= c.state.limits.max_qps)
        return fail(ENOMEM, "all {} QPs of rocid are in use", c.state.limits.max_qps);
    return has_room(c.session.qps, kQpSlots, "QP");
}

/// Allocates the queues that the QP type needs. Sets `cap` to the capabilities of the allocated queues.
Outcome lay_out(Call& c, const abi::CreateQpRequest& in, const Needs& needs, const Srq* srq, Qp& qp, qp::Spec& spec,
                abi::QpCap& cap) {
    if (needs.send) {
        const SqShape shape = sq_shape(matches_tags(srq) ? rendezvous_cap() : in.cap, c.state.limits);
        if (Outcome o = lay_out_sq(c.session, shape, qp.sq, spec.sq); o.failed()) return o;
        cap.max_send_wr = shape.depth;
        cap.max_send_sge = shape.max_sge;
        spec.max_send_sge = uint16_t(shape.max_sge);
        cap.max_inline_data = spec.max_inline_data = shape.max_inline;
    }
    if (needs.receive && in.srq == abi::kNoHandle) {
        const RqShape shape = rq_shape(in.cap.max_recv_wr, in.cap.max_recv_sge);
        if (Outcome o = lay_out_rq(c.session, shape, qp.rq, spec.rq); o.failed()) return o;
        cap.max_recv_wr = shape.depth;
        cap.max_recv_sge = shape.max_sge;
    }
    return done();
}

/// Adds the QP to its engine. Then adds the QP's number to the table in which engines look up the QP of a packet.
Outcome start(State& state, Qp& qp, const qp::Spec& spec, const qp::Owner& owner) {
    qp.engine_side = state.qps.create(spec, owner);
    if (qp.engine_side == nullptr) return fail(ENOMEM, "no memory for another QP");
    Nanos at = 0;
    if (const int error = state.execute(qp.spec().engine, engine::AddQp{.qp = qp.engine_side.get(), .at = &at}); error != 0) {
        qp.engine_side.reset();
        return fail(error, "the engine refused the QP");
    }
    qp.steps.add(at, qp::State::reset);
    state.shared.qps.publish(spec.qpn.value, qp.engine_side.get());
    ++state.engine_load[spec.engine];
    return done();
}

/// Returns the engine for a QP: the engine of the QP's SRQ or XRC domain if there is one, otherwise pick_engine().
uint32_t home(State& state, const Parts& p) {
    if (p.srq != nullptr) return p.srq->spec().engine;
    return p.xrcd != nullptr ? p.xrcd->domain->engine : state.pick_engine();
}

void hold(const std::shared_ptr<Qp>& shared, Parts& p) {
    Qp& qp = *shared;
    if (p.pd != nullptr) qp.pd = Use(p.pd->uses);
    if (p.send_cq != nullptr) qp.send_cq = Use(p.send_cq->ring.use_count);
    if (p.recv_cq != nullptr) qp.recv_cq = Use(p.recv_cq->ring.use_count);
    if (p.srq != nullptr) qp.srq = Use(p.srq->uses);
    if (p.xrcd != nullptr) share(*p.xrcd, shared);
}

void answer(Call& c, const Qp& qp) {
    const qp::Spec& s = qp.spec();
    const qp::Owner& owner = qp::owner_of(*qp.engine_side);
    abi::CreateQpReply out{};
    out.handle = out.slot = owner.handle;
    out.generation = owner.generation;
    out.qpn = s.qpn.value;
    out.engine = s.engine;
    out.sq_depth = qp.attr.cap.max_send_wr != 0 ? s.sq.depth : 0;  // 0 with a tag matching SRQ: only rocid uses the queue
    out.sq_stride = s.sq.stride;
    out.rq_depth = s.rq.depth;
    out.rq_stride = s.rq.stride;
    out.cap = qp.attr.cap;
    out.sq = qp.sq.where();
    out.rq = qp.rq.where();
    c.answer(out);
}

}  // namespace

Outcome create_qp(Call& c) {
    const auto in = c.in<abi::CreateQpRequest>();
    const Needs* needs;
    if (Outcome o = check_request(c, in, needs); o.failed()) return o;
    Parts parts;
    if (Outcome o = find_parts(c, in, *needs, parts); o.failed()) return o;

    auto qp = std::make_shared<Qp>();
    abi::QpCap cap{};
    qp::Spec spec;
    if (Outcome o = lay_out(c, in, *needs, parts.srq, *qp, spec, cap); o.failed()) return o;
    const auto number = c.state.qpns.allocate(c.state.platform.random());
    if (!number) return fail(ENOMEM, "all QP numbers are in use");
    const auto place = c.session.qps.next();
    spec.type = needs->type;
    spec.qpn = Qpn{*number};
    spec.engine = home(c.state, parts);
    spec.port = *c.session.device;
    spec.pd = parts.pd != nullptr ? parts.pd->number : 0;
    spec.xrcd = parts.xrcd != nullptr ? parts.xrcd->domain->number : 0;
    spec.sq_sig_all = in.sq_sig_all != 0;
    spec.send_cq = parts.send_cq != nullptr ? &parts.send_cq->ring : nullptr;
    spec.recv_cq = parts.recv_cq != nullptr ? &parts.recv_cq->ring : nullptr;
    spec.srq = parts.srq != nullptr ? parts.srq->engine_side : nullptr;
    if (!matches_tags(parts.srq)) qp->attr.cap = cap;  // with a tag matching SRQ, the client must not use the send queue
    if (Outcome o = start(c.state, *qp, spec, {c.session.id, place.handle, place.generation}); o.failed()) {
        c.state.qpns.release(*number);
        return o;
    }
    hold(qp, parts);
    answer(c, *qp);
    c.session.qps.put(std::move(qp));
    return done();
}

int snapshot(State& state, const Qp& qp, qp::Snapshot& out) {
    return state.execute(qp.spec().engine, engine::QueryQp{.qp = qp.engine_side.get(), .snapshot = &out});
}

Outcome query_qp(Call& c) {
    Qp* qp;
    if (Outcome o = look_up(c.session.qps, c.in<abi::HandleRequest>().handle, "QP", qp); o.failed()) return o;
    qp::Snapshot now;
    if (const int error = snapshot(c.state, *qp, now); error != 0) return fail(error, "the engine does not answer");
    abi::QueryQpReply out{};
    out.attr = qp->attr;
    out.attr.qp_state = out.attr.cur_qp_state = uint32_t(now.state);
    out.attr.sq_draining = now.sq_draining;
    out.attr.sq_psn = now.send_psn.value();
    out.attr.rq_psn = now.expected_psn.value();
    out.sq_sig_all = qp->spec().sq_sig_all;
    c.answer(out);
    return done();
}

Outcome destroy_qp(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Qp* qp;
    if (Outcome o = look_up(c.session.qps, handle, "QP", qp); o.failed()) return o;
    if (leave(c.state, {c.session.id, handle, c.session.qps.generation(handle)}, *qp)) {
        c.session.qps.erase(handle);
        return done();
    }
    if (!qp->groups.empty()) return fail(EBUSY, "the QP is attached to {} multicast groups; detach it first", qp->groups.size());
    if (!retire(c.state, *qp)) return wait_for_memory();
    // RemoveQp has removed all references to the QP that the QP's own engine had, so the fence is only needed for other engines.
    if (c.state.engine_load.size() > 1) c.state.fence_all();
    free_resources(c.state, *qp);
    c.session.qps.erase(handle);
    return done();
}

Outcome send_posted(Call& c) {
    Qp* qp;
    if (Outcome o = look_up(c.session.qps, c.in<abi::HandleRequest>().handle, "QP", qp); o.failed()) return o;
    if (qp->spec().type != qp::Type::ud) return fail(EINVAL, "QP {:#x} is not a UD QP", qp->spec().qpn.value);
    engine::SendPosted command{.qp = qp->engine_side.get()};
    c.state.execute(qp->spec().engine, command);
    c.answer(abi::SendPostedReply{.more = command.more});
    return done();
}

bool retire(State& state, Qp& qp) {
    state.shared.qps.clear(qp.spec().qpn.value);
    return state.execute(qp.spec().engine, engine::RemoveQp{.qp = qp.engine_side.get()}) != EAGAIN;
}

QpFacts facts_of(const Session& session, const Qp& qp) {
    QpFacts f;
    f.qpn = qp.spec().qpn.value;
    f.device = qp.spec().port;
    f.uid = session.who.uid;
    f.pid = int(session.who.pid);
    f.program = session.program;
    f.type = qp.spec().type;
    f.attr = qp.attr;
    f.send_depth = qp.spec().sq.depth;
    f.recv_depth = qp.spec().rq.depth;
    f.has_srq = qp.spec().srq != nullptr;
    f.refused = qp.refused;
    f.steps = qp.steps;
    return f;
}

void free_resources(State& state, Qp& qp) {
    const uint32_t qpn = qp.spec().qpn.value, engine = qp.spec().engine;
    if (const Session* s = state.find(qp::owner_of(*qp.engine_side).session); s != nullptr) {
        QpFacts f = facts_of(*s, qp);
        f.gone = true;
        f.now.state = qp.steps.last();
        const bool never_ready = !f.refused.empty() && f.now.state < qp::State::rts;
        if (qp::last_words(*qp.engine_side, f.now, f.journal) || never_ready) state.gone.keep(std::move(f));
    }
    leave_groups(state, qp);
    qp.engine_side.reset();
    state.qpns.release(qpn);
    --state.engine_load[engine];
}

}  // namespace roci::host::objects
