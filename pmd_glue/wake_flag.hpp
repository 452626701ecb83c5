// A flag that shows whether a thread sleeps, and the means to wake the thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "sleeper.hpp"

namespace roci::pmd {

/// Wakes a consumer thread only if the consumer sleeps. Before a sleep, the consumer sets `sleeping`, executes a full fence and
/// checks again for work. A producer publishes work and then calls notify().
struct WakeFlag {
    std::atomic<uint32_t> sleeping{0};
    Sleeper sleeper;
    void notify() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (sleeping.load(std::memory_order_relaxed) != 0) sleeper.wake();
    }
};

}  // namespace roci::pmd
