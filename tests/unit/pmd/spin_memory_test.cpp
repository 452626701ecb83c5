// Tests of SpinMemory, which remembers after which messages polling delays work, and of an lcore that uses it.
#include "pmd_glue/spin_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fake_engine.hpp"

namespace roci::pmd {
namespace {

/// Returns how many of the next `n` messages are worth polling.
uint32_t worth(SpinMemory& memory, uint32_t message, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; ++i) count += memory.worth(message) ? 1u : 0u;
    return count;
}

TEST(SpinMemory, PollingEndsAfterMessagesWhoseWorkComesSoonerDuringASleep) {
    SpinMemory memory;
    memory.slept(6, 50'000, 10'000);
    EXPECT_EQ(worth(memory, 6, 100), 100u) << "one failure may be chance";
    memory.slept(6, 100'000, 10'000);
    EXPECT_EQ(worth(memory, 6, 4 * SpinMemory::kProbe), 4u) << "it tries again now and then";
    EXPECT_EQ(worth(memory, 7, 100), 100u) << "other messages are not concerned";
}

TEST(SpinMemory, AlternatingMessagesAreAllTriedAgain) {
    SpinMemory memory;
    for (const uint32_t message : {6u, 7u})
        for (int i = 0; i < 2; ++i) memory.slept(message, 50'000, 10'000);
    std::array<uint32_t, 8> tried{};
    for (uint32_t i = 0; i < 4 * SpinMemory::kProbe; ++i)
        for (const uint32_t message : {6u, 7u}) tried[message] += memory.worth(message) ? 1u : 0u;
    EXPECT_EQ(tried[6], 4u);
    EXPECT_EQ(tried[7], 4u);
}

TEST(SpinMemory, SeldomFailuresDoNotEndPolling) {
    SpinMemory memory;
    for (int i = 0; i < 20; ++i) {
        memory.slept(6, 50'000, 10'000);
        EXPECT_EQ(worth(memory, 6, 100), 100u);
        memory.paid_off(6);
        memory.paid_off(6);
    }
}

TEST(SpinMemory, PollingStartsAgainAfterItPaidOffTwice) {
    SpinMemory memory;
    for (int i = 0; i < 5; ++i) memory.slept(6, 50'000, 10'000);
    memory.paid_off(6);
    EXPECT_LT(worth(memory, 6, 100), 10u);
    memory.paid_off(6);
    EXPECT_EQ(worth(memory, 6, 100), 100u);
}

TEST(SpinMemory, ALongSleepShowsNothing) {
    SpinMemory memory;
    for (int i = 0; i < 5; ++i) memory.slept(6, 50'000, 50'000);
    EXPECT_EQ(worth(memory, 6, 100), 100u);
}

/// A clock that advances by the same time at each call.
struct CountingTime final : TimeSource {
    Nanos now() const override { return calls.fetch_add(1) * 100; }
    mutable std::atomic<Nanos> calls{1};
};

/// The work comes only when the lcore has gone to sleep, as from a program that needs the lcore's CPU.
TEST(LcoreAndSleepingWork, StopsPollingBeforeWorkThatPollingDelays) {
    FakeEngine engine;
    CountingTime time;
    uint32_t sleeping = 0;
    WakeFlag events;
    Epoch epoch;
    LcoreLoop<FakeEngine, CountingTime> loop(engine, time, {.spin = 100'000}, sleeping, events, epoch);
    loop.pace() = abi::CpuPace(UINT32_MAX / 4);  // never yields, so that other programs of the machine do not matter
    for (int i = 0; i < 32; ++i) loop.pace().yielded(0, 1);
    std::thread thread([&] { loop.run(); });
    const auto polls_per_message = [&](uint32_t messages) {
        uint32_t least = UINT32_MAX, few = 0;
        for (uint32_t i = 0; i < messages; ++i) {
            const uint32_t before = engine.polls;
            const uint64_t sleeps = loop.counters().sleeps;
            engine.doorbell = 1;
            loop.wake_flag().sleeper.wake();
            EXPECT_TRUE(soon([&] { return loop.counters().sleeps.load() > sleeps && engine.doorbell.load() == 0; }));
            least = std::min(least, engine.polls - before);
            few += engine.polls - before <= 4 ? 1u : 0u;
        }
        return std::pair{least, few};
    };
    EXPECT_TRUE(soon([&] { return loop.counters().sleeps.load() > 0; }));
    polls_per_message(16);  // SpinTime reaches its longest time, then polling fails twice
    const auto [least, few] = polls_per_message(SpinMemory::kProbe);
    EXPECT_GE(few, SpinMemory::kProbe - 2) << "per message: a round with work, one without, one before the sleep";
    EXPECT_GE(least, 3u);
    loop.stop();
    thread.join();
}

}  // namespace
}  // namespace roci::pmd
