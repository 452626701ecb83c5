// A lock for the few dozen instructions of a post or a poll. It yields when it has spun for a while, because the holder may have
// been preempted on the only free core.
#pragma once

#include <sched.h>

#include <atomic>

namespace roci::client {

class Spinlock {
public:
    void lock() {
        while (held_.exchange(true, std::memory_order_acquire)) wait();
    }
    void unlock() { held_.store(false, std::memory_order_release); }

private:
    static constexpr int kSpins = 200;
    void wait() {
        for (int n = 0; held_.load(std::memory_order_relaxed); ++n) {
            if (n < kSpins)
                __builtin_ia32_pause();
            else
                sched_yield();
        }
    }
    std::atomic<bool> held_{false};
};

/// Holds a lock unless the object was promised to be used by one thread at a time.
class MaybeGuard {
public:
    MaybeGuard(Spinlock& lock, bool needed) : lock_(needed ? &lock : nullptr) {
        if (lock_ != nullptr) lock_->lock();
    }
    ~MaybeGuard() {
        if (lock_ != nullptr) lock_->unlock();
    }
    MaybeGuard(const MaybeGuard&) = delete;
    MaybeGuard& operator=(const MaybeGuard&) = delete;

private:
    Spinlock* lock_;
};

}  // namespace roci::client
