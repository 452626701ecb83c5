// Tests of bump() on counters that one thread writes: bump() adds numbers of any size, and a reader never reads a
// half-written counter.
#include "base/bump.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace roci {
namespace {

TEST(Bump, AddsNumbersOfAnySize) {
    uint64_t value = 7;
    bump(value);
    bump(value, 0);
    bump(value, 0x7fffffff);
    bump(value, 0x80000000);
    bump(value, uint64_t{1} << 40);
    EXPECT_EQ(value, 8 + uint64_t{0xffffffff} + (uint64_t{1} << 40));
    bump(value, ~uint64_t{0});
    EXPECT_EQ(value, 7 + uint64_t{0xffffffff} + (uint64_t{1} << 40));
}

TEST(Bump, AReaderSeesOnlyWholeSums) {
    constexpr uint64_t kStep = (uint64_t{1} << 32) + 1;  // changes both 32-bit halves of the counter
    constexpr int kTimes = 100'000;
    uint64_t value = 0;
    const std::jthread writer([&] {
        for (int i = 0; i < kTimes; ++i) bump(value, kStep);
    });
    uint64_t before = 0;
    while (before != kTimes * kStep) {
        const uint64_t now = std::atomic_ref(value).load(std::memory_order_relaxed);
        ASSERT_EQ(now % kStep, 0u);
        ASSERT_GE(now, before);
        before = now;
    }
}

}  // namespace
}  // namespace roci
