// Tests of the delay policy on far paths, where only losses reduce the window.
#include "fixture.hpp"

namespace roci::cc {
namespace {

/// A path whose shortest round trip takes 10 ms. Hosts delay packets there by milliseconds, at random.
struct Far : Delay {
    static constexpr uint32_t kPath = 10'000'000;
    void rounds_between(uint32_t n, uint32_t least, uint32_t most) {
        for (uint32_t i = 0; i < n; ++i) round(i % 2 == 0 ? least : most, kPath);
    }
};

TEST_F(Far, LongRoundTripsDoNotShrinkTheWindow) {
    rounds_between(20, kPath, kPath * 3);
    const uint32_t before = window(c, l);
    rounds_between(100, kPath + kPath / 4, kPath * 3);
    EXPECT_NEAR(window(c, l), before + 100, 4) << "by a packet per round trip";
}

TEST_F(Far, ALossShrinksTheWindowIfPacketsWaitInQueues) {
    rounds_between(100, kPath + kPath / 2, kPath + kPath / 2);
    const uint32_t before = window(c, l);
    round(kPath + kPath / 10, kPath);
    on_loss(c, s, l, now, kPath);
    EXPECT_GE(window(c, l), before) << "the queue is short, so the loss happened by chance";
    round(kPath * 2, kPath);
    on_loss(c, s, l, now, kPath);
    EXPECT_NEAR(window(c, l), before * 7 / 10, 2);
}

TEST_F(Far, RepeatedTimeoutsDoNotEndTheFastGrowthEarlier) {
    rounds_between(100, kPath, kPath);
    const uint32_t before = window(c, l);
    for (int i = 0; i < 3; ++i) on_timeout(c, s, l, now);
    EXPECT_EQ(window(c, l), 2u);
    uint32_t needed = 0;
    for (; window(c, l) < before / 2 && needed < 100; ++needed) round(kPath, kPath);
    EXPECT_LE(needed, 15u);
}

/// A long first round trip must not make the unit of the times in queues coarse for ever.
TEST_F(Delay, AfterALongFirstRoundTripShortQueuesAreMeasured) {
    round(100'000'000, 100'000'000);
    ASSERT_TRUE(s.far);
    rounds(3, kEmpty + 5'000);
    EXPECT_FALSE(s.far);
    EXPECT_EQ(uint32_t{s.queue} << s.unit_shift, 4992u);
}

TEST_F(Far, APauseOfSomeMillisecondsIsNotIdle) {
    rounds_between(50, kPath, kPath);
    const uint32_t before = window(c, l);
    now += 50'000'000;
    turn();
    EXPECT_EQ(window(c, l), before);
    now += 250'000'000;
    turn();
    EXPECT_EQ(window(c, l), l.first_window);
}

}  // namespace
}  // namespace roci::cc
