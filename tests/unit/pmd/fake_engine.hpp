// A fake engine for tests of the lcore loop. The test sets its doorbell, its deadline and its events.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <variant>
#include <vector>

#include "base/time_source.hpp"
#include "io/event.hpp"
#include "pmd_glue/lcore_loop.hpp"

namespace roci::pmd {

struct RealTime final : TimeSource {
    Nanos now() const override { return Nanos(std::chrono::steady_clock::now().time_since_epoch().count()); }
};

struct FakeEngine {
    std::atomic<uint32_t> doorbell{0}, served{0}, polls{0};
    std::atomic<Nanos> deadline{kNever};
    std::atomic<bool> event_wanted{false};
    std::atomic<uint32_t> wake_mask{0};
    io::EventRing ring{64};

    /// Fails the test if two threads use the engine at the same time.
    struct Alone {
        explicit Alone(FakeEngine& e) : engine(e) { EXPECT_EQ(engine.users.fetch_add(1), 0u); }
        ~Alone() { engine.users.fetch_sub(1); }
        FakeEngine& engine;
    };
    std::atomic<uint32_t> users{0}, executed_asleep{0};

    bool poll(Nanos now) {
        const Alone alone(*this);
        polls.fetch_add(1);
        if (event_wanted.exchange(false)) return ring.push({});
        if (now >= deadline.load()) {
            deadline = kNever;
            served.fetch_add(1);
            return true;
        }
        if (doorbell.exchange(0) == 0) return false;
        served.fetch_add(1);
        return true;
    }
    void execute(const engine::Command& c, Nanos, bool asleep) {
        const Alone alone(*this);
        executed_asleep += asleep ? 1u : 0u;
        engine::refuse(c, 42);
        ++executed;
        polls_at_command = polls.load();
        if (in_command) in_command();
    }
    bool is_quiet(const engine::Command& c) const { return std::holds_alternative<engine::QuerySrq*>(c); }
    void let_go() { lets_go.fetch_add(1); }
    bool keeps_cqs() const { return keeps.load(); }
    std::atomic<uint32_t> executed{0}, polls_at_command{0}, lets_go{0};
    std::atomic<bool> keeps{false};
    std::function<void()> in_command;
    Nanos next_deadline(Nanos) const { return deadline.load(); }
    bool doorbell_pending() const { return doorbell.load() != 0; }
    std::vector<rings::Sleeper> sleeping_programs;
    std::atomic<bool> lingers{true};
    std::vector<rings::Sleeper>& sleepers() { return sleeping_programs; }
    void settle_sleepers() {}
    uint32_t latest() const { return 0; }
    std::atomic<uint32_t> naps{0};  ///< number of sleeps that the lcore has reported to the engine
    void slept(Nanos from, Nanos to, bool) { naps += from <= to ? 1u : 0u; }
    void stop_lingering() { lingers = false; }
    uint32_t take_wake_mask() { return wake_mask.exchange(0); }
    io::EventRing& events() { return ring; }
};

template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 5000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

}  // namespace roci::pmd
