// resize_cq moves a CQ to a new ring, lane by lane. A lane is one engine's part of a CQ. Each engine moves its own lane. QPs
// continue to add CQEs during the move.
#include <algorithm>

#include "host/objects/cq_memory.hpp"
#include "host/objects/handlers.hpp"

namespace roci::host::objects {
namespace {

/// Returns the number of entries of a lane that the client has not polled. `consumer` is the client's consumer index. A wrong
/// index harms only the client itself.
uint32_t queued(const rings::CqLane& lane, uint32_t consumer, uint32_t depth) {
    uint32_t n = 0;
    while (n < depth) {
        const uint32_t i = consumer + n;
        if (std::atomic_ref(lane.entries[i & (depth - 1)].seq).load(std::memory_order_acquire) != i + 1) break;
        ++n;
    }
    return n;
}

struct Ring {
    ArenaBlock memory;
    CqParts parts;
    uint32_t depth = 0;
};

int move_lane(State& state, Cq& cq, uint32_t lane, const Ring& to, uint32_t consumer) {
    return state.execute(lane, engine::ResizeCq{.cq = &cq.ring, .new_lane = to.parts.lanes[lane], .consumer = consumer});
}

/// Moves the lanes to the ring `to`, one after the other, until an engine refuses. Returns the number of moved lanes.
uint32_t move_all(State& state, Cq& cq, const Ring& to, const uint32_t* consumer, uint32_t already_moved) {
    uint32_t lane = 0;
    for (; lane < cq.ring.lane_count; ++lane) {
        // An earlier move has compacted the first `already_moved` lanes, so the first entry of these lanes has index 0.
        if (move_lane(state, cq, lane, to, lane < already_moved ? 0 : consumer[lane]) != 0) break;
    }
    return lane;
}

void adopt(State& state, Session& session, Cq& cq, Ring& ring) {
    auto& arm = ring.parts.shared->arm;
    std::atomic_ref(arm).store(std::atomic_ref(cq.ring.shared->arm).load(std::memory_order_relaxed), std::memory_order_relaxed);
    std::atomic_ref(cq.ring.shared).store(ring.parts.shared, std::memory_order_release);
    state.fence_all();
    std::swap(cq.memory, ring.memory);
    session.cq_entries += uint64_t{ring.depth} - cq.depth;
    cq.depth = ring.depth;
}

void answer(Call& c, const Cq& cq) {
    c.answer(abi::CreateCqReply{cq.ring.handle, cq.ring.generation, cq.depth, cq.ring.lane_count, cq.memory.where()});
}

/// Called if some lanes have moved to `partial` and another lane did not fit, because the engine of that lane had added further
/// CQEs. Moves all lanes to a third ring, `roomy`, of the old depth. The move fails if a consumer index of the client is invalid.
/// In this case, the CQ is dead and keeps all three rings.
Outcome fall_back(Call& c, Cq& cq, Ring& partial, Ring& roomy, uint32_t moved, const uint32_t* consumer) {
    if (roomy.memory && move_all(c.state, cq, roomy, consumer, moved) == cq.ring.lane_count) {
        adopt(c.state, c.session, cq, roomy);
        answer(c, cq);
        return done();
    }
    cq.ring.dead.store(true, std::memory_order_relaxed);
    cq.stranded.push_back(std::move(partial.memory));
    cq.stranded.push_back(std::move(roomy.memory));
    return fail(EINVAL, "CQ {}: consumer indices do not match what was polled; the CQ is dead", cq.ring.handle);
}

}  // namespace

Outcome resize_cq(Call& c) {
    const auto in = c.in<abi::ResizeCqRequest>();
    Cq* cq;
    if (Outcome o = look_up(c.session.cqs, in.handle, "CQ", cq); o.failed()) return o;
    if (!cq->stranded.empty()) return fail(EINVAL, "CQ {} is dead after a failed resize; destroy it", in.handle);
    Ring ring;
    if (Outcome o = cq_depth(c.state.limits, in.cqe, ring.depth); o.failed()) return o;
    if (ring.depth < cq->depth) {  // each engine runs a round, so that queued() also counts completions of earlier requests
        c.state.engines.barrier_all();
        c.state.engines.barrier_all();
    }
    for (uint32_t e = 0; e < cq->ring.lane_count; ++e) {
        // The pointer `entries` of a lane cannot change during this loop, because only commands of this thread change the
        // pointer.
        const uint32_t n = queued(cq->ring.lanes[e], in.consumer[e], cq->depth);
        if (n > ring.depth)
            return fail(EINVAL, "CQ {} holds {} entries, more than the requested {}; poll it first", in.handle, n, in.cqe);
    }
    if (Outcome o = lay_out_cq(c.session, ring.depth, cq->ring.lane_count, ring.memory, ring.parts); o.failed()) return o;
    Ring roomy{.depth = cq->depth};  // allocated here, because the client cannot add memory after a lane has moved
    if (ring.depth < cq->depth && cq->ring.lane_count > 1) {
        if (Outcome o = lay_out_cq(c.session, roomy.depth, cq->ring.lane_count, roomy.memory, roomy.parts); o.failed()) return o;
    }
    const uint32_t moved = move_all(c.state, *cq, ring, in.consumer, 0);
    if (moved == 0) return fail(EINVAL, "CQ {}: entries queued do not fit {}, or the consumer index is wrong", in.handle, in.cqe);
    if (moved < cq->ring.lane_count) return fall_back(c, *cq, ring, roomy, moved, in.consumer);
    adopt(c.state, c.session, *cq, ring);
    answer(c, *cq);
    return done();
}

}  // namespace roci::host::objects
