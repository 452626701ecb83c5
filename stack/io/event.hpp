// Events from an engine for the completion channels and the asynchronous event queues of clients. The ring has one producer
// (the engine) and one consumer (rocid's event thread). The size of the ring is a fixed power of two. If the ring is full,
// push() returns false. The engine then keeps the event and sends it later, so no event is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace roci::io {

struct Event {
    enum class Kind : uint32_t { completion, async, gsi /* MADs or frames wait for the conductor */ } kind = Kind::completion;
    uint32_t session = 0;
    uint32_t type = 0;    ///< async: a value of abi::AsyncEvent
    uint32_t handle = 0;  ///< CQ, QP or SRQ handle of the session
    uint32_t generation = 0;
    uint32_t channel = 0;  ///< completion: handle of the completion channel
    uint32_t vector = 0;   ///< completion: completion vector of the CQ
};

class EventRing {
public:
    explicit EventRing(uint32_t size_pow2) : mask_(size_pow2 - 1), slots_(std::make_unique<Event[]>(size_pow2)) {}
    bool push(const Event& e) {
        const uint32_t h = head_.load(std::memory_order_relaxed);
        if (h - tail_.load(std::memory_order_acquire) > mask_) return false;
        slots_[h & mask_] = e;
        head_.store(h + 1, std::memory_order_release);
        return true;
    }
    /// Copies the next event to `e` and does not remove the event from the ring. Called by the consumer. Returns false if the
    /// ring is empty.
    bool peek(Event& e) const {
        const uint32_t t = tail_.load(std::memory_order_relaxed);
        if (t == head_.load(std::memory_order_acquire)) return false;
        e = slots_[t & mask_];
        return true;
    }
    bool pop(Event& e) {
        const uint32_t t = tail_.load(std::memory_order_relaxed);
        if (t == head_.load(std::memory_order_acquire)) return false;
        e = slots_[t & mask_];
        tail_.store(t + 1, std::memory_order_release);
        return true;
    }
    /// Returns the number of events pushed so far. The lcore loop wakes the event thread when the number changes.
    uint32_t pushed() const { return head_.load(std::memory_order_acquire); }
    bool empty() const { return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire); }

private:
    alignas(64) std::atomic<uint32_t> head_{0};
    alignas(64) std::atomic<uint32_t> tail_{0};
    const uint32_t mask_;
    std::unique_ptr<Event[]> slots_;
};

}  // namespace roci::io
