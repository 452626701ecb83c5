// Completion channels and completion queues.
#include "host/objects/cq_memory.hpp"

#include <bit>

#include "host/objects/handlers.hpp"

namespace roci::host::objects {

Outcome lay_out_cq(Session& session, uint32_t depth, uint32_t lanes, ArenaBlock& block, CqParts& parts) {
    const uint64_t lane_bytes = sizeof(abi::CqLane) + uint64_t(depth) * sizeof(abi::Cqe);
    if (Outcome o = session.arena.allocate(sizeof(abi::CqShared) + lanes * lane_bytes, block); o.failed()) return o;
    parts.shared = reinterpret_cast<abi::CqShared*>(block.base());
    std::byte* at = block.base() + sizeof(abi::CqShared);
    for (uint32_t e = 0; e < lanes; ++e, at += lane_bytes) {
        parts.lanes[e].shared = reinterpret_cast<abi::CqLane*>(at);
        parts.lanes[e].entries = reinterpret_cast<abi::Cqe*>(at + sizeof(abi::CqLane));
        parts.lanes[e].depth = depth;
    }
    return done();
}

Outcome cq_depth(const Limits& limits, uint32_t cqe, uint32_t& depth) {
    if (cqe == 0 || cqe > limits.max_cqe) return fail(EINVAL, "a CQ of {} entries: 1 to {} are possible", cqe, limits.max_cqe);
    depth = std::bit_ceil(cqe);
    return done();
}

Outcome create_channel(Call& c) {
    auto& channels = c.session.channels;
    if (Outcome o = has_room(channels, c.state.caps.max_channels, "channel"); o.failed()) return o;
    const auto place = channels.next();
    const int fd = c.state.platform.make_event_pipe(c.session.id, place.handle);
    if (fd < 0 && c.state.real_descriptors()) return fail(EMFILE, "rocid is out of file descriptors; raise its limit");
    channels.put(std::make_unique<Channel>());
    c.give(fd, false);
    c.answer(abi::HandleReply{place.handle, place.generation});
    return done();
}

Outcome destroy_channel(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Channel* channel;
    if (Outcome o = look_up(c.session.channels, handle, "channel", channel); o.failed()) return o;
    if (Outcome o = must_be_idle(channel->uses, "channel", "CQs"); o.failed()) return o;
    c.state.platform.close_event_pipe(c.session.id, handle);
    c.session.channels.erase(handle);
    return done();
}

Outcome create_cq(Call& c) {
    const auto in = c.in<abi::CreateCqRequest>();
    Session& s = c.session;
    constexpr uint32_t kIgnoreOverrun = 1;
    if (Outcome o = has_room(s.cqs, c.state.caps.max_cqs, "CQ"); o.failed()) return o;
    const uint32_t lanes = c.state.engines.engines();
    uint32_t depth = 0;
    if (Outcome o = cq_depth(c.state.limits, in.cqe, depth); o.failed()) return o;
    const uint32_t vectors = c.state.caps.comp_vectors;
    if (in.vector >= vectors) return fail(EINVAL, "no completion vector {}: there are {}", in.vector, vectors);
    if ((in.flags & ~kIgnoreOverrun) != 0) return fail(EOPNOTSUPP, "unknown CQ flags {:#x}", in.flags);
    Channel* channel = nullptr;
    if (in.channel != abi::kNoHandle) {
        if (Outcome o = look_up(s.channels, in.channel, "channel", channel); o.failed()) return o;
    }

    auto cq = std::make_unique<Cq>();
    CqParts parts;
    if (Outcome o = lay_out_cq(s, depth, lanes, cq->memory, parts); o.failed()) return o;
    const auto place = s.cqs.next();
    rings::Cq& r = cq->ring;
    r.shared = parts.shared;
    std::copy(parts.lanes, parts.lanes + lanes, r.lanes);
    r.lane_count = lanes;
    r.session = s.id;
    r.handle = place.handle;
    r.generation = place.generation;
    r.channel = in.channel;
    r.vector = in.vector;
    r.ignore_overrun = (in.flags & kIgnoreOverrun) != 0;
    cq->depth = depth;
    s.cq_entries += depth;
    if (channel != nullptr) cq->channel = Use(channel->uses);
    c.answer(abi::CreateCqReply{place.handle, place.generation, depth, lanes, cq->memory.where()});
    s.cqs.put(std::move(cq));
    return done();
}

Outcome modify_cq(Call& c) {
    const auto in = c.in<abi::ModifyCqRequest>();
    Cq* cq;
    if (Outcome o = look_up(c.session.cqs, in.handle, "CQ", cq); o.failed()) return o;
    const Capabilities& caps = c.state.caps;
    if (in.count > caps.max_moderation_count || in.period_us > caps.max_moderation_us) {
        return fail(EINVAL, "moderation by {} entries, {} us: at most {} and {}", in.count, in.period_us,
                    caps.max_moderation_count, caps.max_moderation_us);
    }
    std::atomic_ref(cq->ring.moderation_count).store(in.count, std::memory_order_relaxed);
    std::atomic_ref(cq->ring.moderation_period_us).store(in.period_us, std::memory_order_relaxed);
    return done();
}

Outcome destroy_cq(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Cq* cq;
    if (Outcome o = look_up(c.session.cqs, handle, "CQ", cq); o.failed()) return o;
    if (Outcome o = must_be_idle(cq->ring.use_count, "CQ", "QPs"); o.failed()) return o;
    c.state.fence_all();
    c.session.cq_entries -= cq->depth;
    c.session.cqs.erase(handle);
    return done();
}

}  // namespace roci::host::objects
