// A lock-free ring between two threads. One thread pushes and the other thread pops.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace roci {

template <class T>
class SpscRing {
public:
    explicit SpscRing(uint32_t size_pow2) : mask_(size_pow2 - 1), slots_(std::make_unique<T[]>(size_pow2)) {}
    bool push(const T& item) {
        const uint32_t h = head_.load(std::memory_order_relaxed);
        if (h - tail_.load(std::memory_order_acquire) > mask_) return false;
        slots_[h & mask_] = item;
        head_.store(h + 1, std::memory_order_release);
        return true;
    }
    bool pop(T& item) {
        const uint32_t t = tail_.load(std::memory_order_relaxed);
        if (t == head_.load(std::memory_order_acquire)) return false;
        item = slots_[t & mask_];
        tail_.store(t + 1, std::memory_order_release);
        return true;
    }
    bool empty() const { return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_seq_cst); }

private:
    alignas(64) std::atomic<uint32_t> head_{0};
    alignas(64) std::atomic<uint32_t> tail_{0};
    const uint32_t mask_;
    std::unique_ptr<T[]> slots_;
};

}  // namespace roci
