// A flag by which threads wake another thread if it sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "sleeper.hpp"

namespace roci::pmd {

/// A thread that others must wake only if it sleeps. The sleeping thread sets `sleeping`, executes a full fence, checks once more
/// for work, and then sleeps. A producer publishes work, then calls notify().
struct WakeFlag {
    std::atomic<uint32_t> sleeping{0};
    Sleeper sleeper;
    void notify() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (sleeping.load(std::memory_order_relaxed) != 0) sleeper.wake();
    }
};

}  // namespace roci::pmd
