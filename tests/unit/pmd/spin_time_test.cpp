// Tests of SpinTime and SpinMemory, which choose how long an idle lcore polls before it sleeps, and after which messages it polls
// at all. The tests use no clock.
#include "pmd_glue/spin_time.hpp"
#include "pmd_glue/spin_memory.hpp"

#include <gtest/gtest.h>

#include <array>

namespace roci::pmd {
namespace {

TEST(SpinTime, GrowsWhileSleepsAreShortAndEndsWithALongSleep) {
    SpinTime spin(50);
    EXPECT_EQ(spin.get(), 50u);
    spin.slept(199);
    EXPECT_EQ(spin.get(), 100u);
    EXPECT_FALSE(spin.is_longest());
    for (int i = 0; i < 3; ++i) spin.slept(0);
    EXPECT_EQ(spin.get(), 200u);
    EXPECT_TRUE(spin.is_longest());
    spin.slept(200);
    EXPECT_EQ(spin.get(), 50u);
}

TEST(SpinTime, GrowsLongerOnASlowProcessor) {
    SpinTime usual(50, SpinTime::kUsualSyscall), spin(50, 5 * SpinTime::kUsualSyscall);
    for (int i = 0; i < 5; ++i) {
        usual.slept(199);
        spin.slept(999);
    }
    EXPECT_EQ(usual.get(), 200u);
    EXPECT_EQ(spin.get(), 1000u);
    spin.slept(1000);
    EXPECT_EQ(spin.get(), 50u);
    SpinTime none(0, 5 * SpinTime::kUsualSyscall);  // the configuration forbids polling
    none.slept(1);
    EXPECT_EQ(none.get(), 0u);
}

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

}  // namespace
}  // namespace roci::pmd
