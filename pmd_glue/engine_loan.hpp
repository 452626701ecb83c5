// An lcore lends its engine to the conductor's thread while the lcore sleeps. The conductor then executes a command itself, so
// that neither thread has to wake the other one.
//
// Only one of the two threads uses the engine: each change of the owner is one atomic operation with acquire or release order. An
// lcore that wakes up meanwhile waits for the end of the command.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace roci::pmd {

class EngineLoan {
public:
    // ---- called by the lcore

    /// Called before the lcore sleeps. From now on the lcore must not use the engine.
    void offer() { state_.store(offered, std::memory_order_release); }
    /// Called after the lcore has slept. Afterwards the lcore may use the engine.
    void take_back() {
        for (uint32_t tries = 0;; ++tries) {
            State expected = offered;
            if (state_.compare_exchange_weak(expected, kept, std::memory_order_acquire)) return;
            if (tries >= kLooks) sched_yield();
        }
    }

    // ---- called by the conductor's thread

    /// Returns false if the lcore is awake.
    bool borrow() {
        State expected = offered;
        return state_.compare_exchange_strong(expected, lent, std::memory_order_acquire);
    }
    void give_back() { state_.store(offered, std::memory_order_release); }

private:
    enum State : uint32_t { kept, offered, lent };
    static constexpr uint32_t kLooks = 1000;
    std::atomic<State> state_{kept};
};

}  // namespace roci::pmd
