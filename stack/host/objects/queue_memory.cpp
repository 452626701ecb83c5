#include "host/objects/queue_memory.hpp"

#include <algorithm>
#include <bit>

#include "host/objects/handlers.hpp"

namespace roci::host::objects {
namespace {

constexpr uint32_t kSqUnit = 64, kRqUnit = 32;

constexpr uint32_t round_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }
uint32_t depth_for(uint32_t wr) { return std::bit_ceil(std::max(wr, 1u)); }

}  // namespace

SqShape sq_shape(const abi::QpCap& asked, const Limits& limits) {
    constexpr uint32_t kSge = sizeof(abi::Sge);
    SqShape s;
    s.depth = depth_for(asked.max_send_wr);
    s.stride = round_up(abi::kSendWqeHead + std::max({kSge * asked.max_send_sge, asked.max_inline_data, kSge}), kSqUnit);
    const uint32_t room = s.stride - abi::kSendWqeHead;
    s.max_sge = std::max(asked.max_send_sge, 1u);
    s.max_inline = std::min(room, limits.max_inline);
    return s;
}

RqShape rq_shape(uint32_t max_wr, uint32_t max_sge) {
    constexpr uint32_t kSge = sizeof(abi::Sge);
    RqShape s;
    s.depth = depth_for(max_wr);
    s.stride = round_up(abi::kRecvWqeHead + kSge * std::max(max_sge, 1u), kRqUnit);
    s.max_sge = std::max(max_sge, 1u);
    return s;
}

Outcome add_chunk(Call& c) {
    const uint64_t length = c.in<abi::AddChunkRequest>().length;
    Arena& arena = c.session.arena;
    if (Outcome o = arena.check_chunk(length); o.failed()) return o;
    std::string why;
    const SharedMemory memory = c.state.platform.map_chunk(c.received.take(), length, why);
    if (memory.base == nullptr) return fail(EINVAL, "the memory for queues was not mapped: {}", why);
    c.answer(abi::HandleReply{arena.add_chunk(memory), 0});
    return done();
}

Outcome lay_out_sq(Session& session, const SqShape& shape, ArenaBlock& block, rings::SqView& view) {
    if (Outcome o = session.arena.allocate(shape.bytes(), block); o.failed()) return o;
    view.shared = reinterpret_cast<abi::SqShared*>(block.base());
    view.shared->idle = 1;  // engines do not poll the queue of a new QP, so the first post must ring the doorbell
    view.depth = shape.depth;
    view.stride = shape.stride;
    return done();
}

Outcome lay_out_rq(Session& session, const RqShape& shape, ArenaBlock& block, rings::RqView& view) {
    if (Outcome o = session.arena.allocate(shape.bytes(), block); o.failed()) return o;
    view.shared = reinterpret_cast<abi::RqShared*>(block.base());
    view.depth = shape.depth;
    view.stride = shape.stride;
    view.max_sge = shape.max_sge;
    return done();
}

}  // namespace roci::host::objects
