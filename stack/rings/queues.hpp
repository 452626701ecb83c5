// rocid's end of the shared rings. Every value read from shared memory is read once and bounded; the engine works on copies.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/rings.hpp"
#include "abi/wqe.hpp"
#include "engine/event.hpp"

namespace roci::rings {

/// Consumer of a client's send queue: spans of the arena, checked by the conductor when the QP was created.
struct SqView {
    abi::SqShared* shared = nullptr;
    const std::byte* slots = nullptr;
    uint32_t depth = 0;       ///< power of two
    uint32_t stride = 0;
    const std::byte* slot(uint32_t index) const { return slots + size_t(index & (depth - 1)) * stride; }
    uint32_t producer() const { return std::atomic_ref(shared->producer).load(std::memory_order_acquire); }
};

/// Consumer of a receive queue or SRQ.
struct RqView {
    abi::RqShared* shared = nullptr;
    const std::byte* slots = nullptr;
    uint32_t depth = 0;
    uint32_t stride = 0;
    uint32_t max_sge = 0;
    uint32_t consumed = 0;    ///< free-running; engine-private
    const std::byte* slot(uint32_t index) const { return slots + size_t(index & (depth - 1)) * stride; }
    uint32_t producer() const { return std::atomic_ref(shared->producer).load(std::memory_order_acquire); }
};

/// One engine's lane of a CQ.
struct CqLane {
    abi::CqLane* shared = nullptr;
    abi::Cqe* entries = nullptr;
    uint32_t depth = 0;       ///< power of two
    uint32_t produced = 0;
    uint32_t consumer_seen = 0;
};

/// A completion queue. Lane e is written by engine e only; `fired` is shared by the engines (an exchange decides who fires).
struct Cq {
    abi::CqShared* shared = nullptr;
    CqLane lanes[abi::kMaxEngines];
    uint32_t lane_count = 0;
    uint32_t session = 0;
    uint32_t handle = 0, generation = 0;
    uint32_t channel = abi::kNoHandle;
    bool ignore_overrun = false;
    std::atomic<uint32_t> fired{0};     ///< last value of `arm` that an event was sent for
    std::atomic<bool> dead{false};      ///< overrun: takes no more entries (IBA 11.6.3.2: CQ in error)
    std::atomic<uint32_t> use_count{0}; ///< QPs attached; conductor
    uint32_t moderation_count = 0, moderation_period_us = 0;
};

enum class PushResult : uint8_t { ok, overrun };

/// Writes one entry to engine `lane`'s lane. `e.seq` is set here.
PushResult push(Cq& cq, uint32_t lane, abi::Cqe& e);
/// After a batch of push(): sends a completion event if the CQ is armed for it. False: event ring full, call again later.
bool notify(Cq& cq, bool solicited, engine::EventRing& events);

}  // namespace roci::rings
