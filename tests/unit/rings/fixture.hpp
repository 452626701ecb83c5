// Heap memory with the layout of rings, and both ends of each ring.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "abi/client_rings.hpp"
#include "rings/doorbell.hpp"
#include "rings/queues.hpp"

namespace roci::rings {

struct AlignedFree {
    void operator()(std::byte* p) const { std::free(p); }
};
using Block = std::unique_ptr<std::byte[], AlignedFree>;

inline Block make_block(size_t n) {
    const size_t rounded = (n + 63) / 64 * 64;
    auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    std::memset(p, 0, rounded);
    return Block(p);
}

inline CqLane lane_in(std::byte* memory, uint32_t depth) {
    CqLane l;
    l.shared = reinterpret_cast<abi::CqLane*>(memory);
    l.entries = reinterpret_cast<abi::Cqe*>(memory + sizeof(abi::CqLane));
    l.depth = depth;
    return l;
}

/// A CQ with its memory and both ends of its ring.
struct CqPair {
    Block memory;
    Cq cq;
    Completions completions;
    abi::CqConsumer client;

    CqPair(uint32_t lanes, uint32_t depth)
        : memory(make_block(sizeof(abi::CqShared) + lanes * abi::CqConsumer::lane_bytes(depth))) {
        cq.shared = client.shared = reinterpret_cast<abi::CqShared*>(memory.get());
        client.lane_base = memory.get() + sizeof(abi::CqShared);
        client.lanes = cq.lane_count = lanes;
        client.depth = depth;
        for (uint32_t l = 0; l < lanes; ++l)
            cq.lanes[l] = lane_in(client.lane_base + l * abi::CqConsumer::lane_bytes(depth), depth);
        cq.session = 3;
        cq.handle = 11;
        cq.generation = 5;
        cq.channel = 2;
    }
    PushResult push(uint64_t wr_id, uint32_t lane = 0) {
        abi::Cqe e{};
        e.wr_id = wr_id;
        e.byte_len = uint32_t(wr_id * 3);
        const PushResult result = rings::push(cq, lane, e, completions);
        completions.write_out();
        return result;
    }
    /// Returns the wr_id of the next entry. Returns -1 if there is no entry, and -2 if the byte_len of the entry does
    /// not match its wr_id.
    int64_t poll() {
        const abi::Cqe* e = client.peek();
        if (e == nullptr) return -1;
        const int64_t id = e->byte_len == uint32_t(e->wr_id * 3) ? int64_t(e->wr_id) : -2;
        client.pop();
        return id;
    }
};

/// A send queue with its memory and both ends of its ring.
struct SqPair {
    Block memory;
    abi::SqProducer client;
    SqView view;

    SqPair(uint32_t depth, uint32_t stride) : memory(make_block(sizeof(abi::SqShared) + size_t(depth) * stride)) {
        client.shared = view.shared = reinterpret_cast<abi::SqShared*>(memory.get());
        client.slots = memory.get() + sizeof(abi::SqShared);
        client.depth = view.depth = depth;
        client.stride = view.stride = stride;
        view.shared->idle = 1;
    }
};

/// Makes one queue idle, which means that the engine no longer polls it. An engine does this for many queues with one
/// fence.
inline bool go_idle(const SqView& sq, uint32_t taken) {
    announce_idle(sq);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return stays_idle(sq, taken);
}

}  // namespace roci::rings
