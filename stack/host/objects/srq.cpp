// Shared receive queues. One engine serves an SRQ and all QPs of the SRQ.
#include "host/objects/queue_memory.hpp"

#include "host/objects/handlers.hpp"
#include "host/objects/tag_matching.hpp"

namespace roci::host::objects {
namespace {

constexpr uint32_t kBasic = 0, kXrc = 1;          // values of enum ibv_srq_type
constexpr uint32_t kSrqMaxWr = 1, kSrqLimit = 2;  // values of enum ibv_srq_attr_mask

Outcome check_size(const Call& c, const abi::CreateSrqRequest& in) {
    const Capabilities& caps = c.state.caps;
    if (in.type != kBasic && in.type != kXrc && in.type != kTagMatchingSrq)
        return fail(EOPNOTSUPP, "SRQ type {} is not supported; IBV_SRQT_BASIC, IBV_SRQT_XRC and IBV_SRQT_TM are", in.type);
    if (in.max_wr == 0 || in.max_wr > caps.max_srq_wr)
        return fail(EINVAL, "SRQ of {} entries: 1 to {} are possible", in.max_wr, caps.max_srq_wr);
    if (in.max_sge > caps.max_srq_sge) return fail(EINVAL, "SRQ with {} SGEs: at most {}", in.max_sge, caps.max_srq_sge);
    return has_room(c.session.srqs, caps.max_srqs, "SRQ");
}

/// The XRC domain and the CQ of an XRC SRQ. Both pointers are nullptr for other types of SRQs.
struct XrcParts {
    Xrcd* xrcd = nullptr;
    Cq* cq = nullptr;
};
Outcome find_xrc_parts(const Session& s, const abi::CreateSrqRequest& in, XrcParts& p) {
    if (in.type != kXrc) return done();
    if (Outcome o = look_up(s.xrcds, in.xrcd, "XRC domain", p.xrcd); o.failed()) return o;
    return look_up(s.cqs, in.cq, "CQ", p.cq);
}

int query_limit(State& state, const Srq& srq, uint32_t& limit) {
    engine::QuerySrq query{.srq = srq.engine_side};
    const int error = state.execute(srq.spec().engine, query);
    limit = query.limit;
    return error;
}

void set_xrc_parts(qp::SrqSpec& spec, const XrcParts& xrc) {
    if (xrc.xrcd != nullptr) spec.xrcd = xrc.xrcd->domain->number;
    if (xrc.cq != nullptr) spec.cq = &xrc.cq->ring;
}

}  // namespace

Outcome create_srq(Call& c) {
    const auto in = c.in<abi::CreateSrqRequest>();
    Session& s = c.session;
    Pd* pd;
    if (Outcome o = look_up(s.pds, in.pd, "PD", pd); o.failed()) return o;
    if (Outcome o = check_size(c, in); o.failed()) return o;
    XrcParts xrc;
    if (Outcome o = find_xrc_parts(s, in, xrc); o.failed()) return o;

    auto srq = std::make_unique<Srq>();
    const RqShape shape = rq_shape(in.max_wr, in.max_sge);
    qp::SrqSpec spec;
    rings::RqView queue;
    if (Outcome o = lay_out_rq(s, shape, srq->memory, queue); o.failed()) return o;
    spec.engine = xrc.xrcd != nullptr ? xrc.xrcd->domain->engine : c.state.pick_engine();
    abi::TagQueue tags{};
    if (Outcome o = add_tag_matching(c, in, *srq, spec, tags); o.failed()) return o;
    const auto number = c.state.srqns.allocate(c.state.platform.random());
    if (!number) return fail(ENOMEM, "all SRQ numbers are in use");
    const auto place = s.srqs.next();
    spec.session = s.id;
    spec.handle = place.handle;
    spec.generation = place.generation;
    spec.srqn = *number;
    spec.pd = pd->number;
    set_xrc_parts(spec, xrc);
    srq->engine_side = qp::create_srq(spec, queue);
    // The engine does not get the request's SRQ limit, because ibv_create_srq(3) ignores the limit.
    if (const int error = c.state.execute(spec.engine, engine::AddSrq{.srq = srq->engine_side}); error != 0) {
        qp::free(srq->engine_side);
        c.state.srqns.release(*number);
        return fail(error, "the engine refused the SRQ");
    }
    ++c.state.engine_load[spec.engine];
    srq->pd = Use(pd->uses);
    if (xrc.xrcd != nullptr) {
        srq->xrcd = Use(xrc.xrcd->uses);
        srq->cq = Use(xrc.cq->ring.use_count);
        c.state.shared.srqs.publish(*number, srq->engine_side);
    }
    c.answer(abi::CreateSrqReply{place.handle, place.generation, *number, shape.depth, shape.stride, shape.depth, shape.max_sge,
                                 0, srq->memory.where(), tags});
    s.srqs.put(std::move(srq));
    return done();
}

namespace {

/// Checks the new depth and limit of the SRQ. A request may change the depth, the limit, or both (ibv_modify_srq(3)). Sets
/// `depth` to the new depth.
Outcome check_change(Call& c, Srq& srq, const abi::ModifySrqRequest& in, uint32_t& depth) {
    const uint32_t most = c.state.caps.max_srq_wr;
    if ((in.mask & ~(kSrqMaxWr | kSrqLimit)) != 0) return fail(EINVAL, "unknown SRQ attributes {:#x}", in.mask);
    depth = srq.queue().depth;
    if ((in.mask & kSrqMaxWr) != 0) {
        if (in.max_wr == 0 || in.max_wr > most) return fail(EINVAL, "SRQ of {} entries: 1 to {} are possible", in.max_wr, most);
        depth = rq_shape(in.max_wr, 0).depth;
    }
    uint32_t limit = in.limit;
    if ((in.mask & kSrqLimit) == 0) {
        if (const int error = query_limit(c.state, srq, limit); error != 0) return fail(error, "the engine does not answer");
    }
    if (limit > depth) return fail(EINVAL, "SRQ limit {} is more than its {} entries", limit, depth);
    return done();
}

/// Moves the queued receive requests to a new ring. The engine executes the move between two rounds.
Outcome resize(Call& c, Srq& srq, uint32_t depth) {
    const rings::RqView& now = srq.queue();
    const RqShape shape{depth, now.stride, now.max_sge};
    ArenaBlock memory;
    rings::RqView queue;
    if (Outcome o = lay_out_rq(c.session, shape, memory, queue); o.failed()) return o;
    if (c.state.execute(srq.spec().engine, engine::ResizeSrq{.srq = srq.engine_side, .new_queue = &queue}) != 0)
        return fail(EINVAL, "more than {} entries are queued in the SRQ", depth);
    std::swap(srq.memory, memory);
    c.answer(abi::ModifySrqReply{depth, depth, srq.memory.where()});
    return done();
}

}  // namespace

Outcome modify_srq(Call& c) {
    const auto in = c.in<abi::ModifySrqRequest>();
    Srq* srq;
    if (Outcome o = look_up(c.session.srqs, in.handle, "SRQ", srq); o.failed()) return o;
    uint32_t depth = 0;
    if (Outcome o = check_change(c, *srq, in, depth); o.failed()) return o;
    if (depth != srq->queue().depth) {
        if (Outcome o = resize(c, *srq, depth); o.failed()) return o;
    }
    if ((in.mask & kSrqLimit) == 0) return done();
    if (const int error = c.state.execute(srq->spec().engine, engine::ModifySrq{.srq = srq->engine_side, .limit = in.limit});
        error != 0)
        return fail(error, "the engine refused the limit");
    return done();
}

Outcome query_srq(Call& c) {
    Srq* srq;
    if (Outcome o = look_up(c.session.srqs, c.in<abi::HandleRequest>().handle, "SRQ", srq); o.failed()) return o;
    uint32_t limit = 0;
    if (const int error = query_limit(c.state, *srq, limit); error != 0) return fail(error, "the engine does not answer");
    c.answer(abi::QuerySrqReply{srq->queue().depth, srq->queue().max_sge, limit, 0});
    return done();
}

Outcome destroy_srq(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Srq* srq;
    if (Outcome o = look_up(c.session.srqs, handle, "SRQ", srq); o.failed()) return o;
    if (Outcome o = must_be_idle(srq->uses, "SRQ", "QPs"); o.failed()) return o;
    retire(c.state, *srq);
    c.state.fence_all();
    free_resources(c.state, *srq);
    c.session.srqs.erase(handle);
    return done();
}

void retire(State& state, Srq& srq) {
    if (srq.spec().xrcd != 0) state.shared.srqs.clear(srq.spec().srqn);
    state.execute(srq.spec().engine, engine::RemoveSrq{.srq = srq.engine_side});
}

void free_resources(State& state, Srq& srq) {
    state.srqns.release(srq.spec().srqn);
    --state.engine_load[srq.spec().engine];
    qp::free(srq.engine_side);
}

}  // namespace roci::host::objects
