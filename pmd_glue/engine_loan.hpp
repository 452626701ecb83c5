// While an lcore sleeps, it lends its engine to the conductor (rocid's control thread). The conductor can then execute a command
// itself, so that it need not wake the lcore.
//
// At any time, only one of the two threads may use the engine. Each change of the owner is one atomic operation with acquire or
// release order. If the lcore wakes up while the conductor uses the engine, the lcore waits for the end of the command.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace roci::pmd {

class EngineLoan {
public:
    // ---- called by the lcore

    /// Called before the lcore sleeps. Afterwards the lcore must not use the engine before take_back() has returned.
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

    /// Called before the use of the engine. Returns false if the lcore has not offered the engine. After a successful call, the
    /// conductor must call give_back().
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
