// The lock for posts and polls. A post or poll usually holds the lock for a few dozen instructions, so a waiting thread first
// spins. Then the waiting thread yields the CPU, because the scheduler may have preempted the thread that holds the lock. The
// lock can be disabled for objects that the program uses from one thread at a time.
#pragma once

#include <sched.h>

#include <atomic>

#include "abi/relax_cpu.hpp"

namespace roci::client {

class Spinlock {
public:
    void lock() {
        if (elided_) return;
        while (held_.exchange(true, std::memory_order_acquire)) wait();
    }
    bool try_lock() { return elided_ || !held_.exchange(true, std::memory_order_acquire); }
    void unlock() {
        if (!elided_) held_.store(false, std::memory_order_release);
    }
    /// Disables the lock. The caller must call this function before the first lock().
    void elide() { elided_ = true; }

private:
    static constexpr int kSpins = 200;
    void wait() {
        for (int n = 0; held_.load(std::memory_order_relaxed); ++n) {
            if (n < kSpins)
                abi::relax_cpu();
            else
                sched_yield();
        }
    }
    std::atomic<bool> held_{false};
    bool elided_ = false;
};

}  // namespace roci::client
