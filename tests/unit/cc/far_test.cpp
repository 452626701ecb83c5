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
    EXPECT_NEAR(window(c, l), before + 50, 4) << "by half a packet per round trip";
}

TEST_F(Far, TheWindowGrowsFasterIfTheQueueStaysEmpty) {
    rounds_between(20, kPath * 2, kPath * 3);
    const uint32_t before = window(c, l);
    for (int i = 0; i < 8; ++i) round(kPath, kPath);
    EXPECT_NEAR(window(c, l), before + 4, 1);
    for (int i = 0; i < 8; ++i) round(kPath, kPath);
    EXPECT_NEAR(window(c, l), before + 4 + (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) / 2, 3);
}

TEST_F(Far, ALossShrinksTheWindowIfPacketsWaitInQueues) {
    rounds_between(100, kPath * 2, kPath * 2);
    const uint32_t before = window(c, l);
    round(kPath + kPath / 10, kPath);
    on_loss(c, s, l, now, kPath);
    EXPECT_GE(window(c, l), before) << "the queue is short, so the loss happened by chance";
    round(kPath * 2, kPath);
    on_loss(c, s, l, now, kPath);
    EXPECT_NEAR(window(c, l), before * 7 / 10, 2);
    now += kPath;
    on_loss(c, s, l, now, kPath);
    EXPECT_NEAR(window(c, l), before * 7 / 10, 2) << "a loss of the same overflow";
    now += 3 * kPath;
    on_loss(c, s, l, now, kPath);
    EXPECT_NEAR(window(c, l), before * 49 / 100, 2) << "a loss of the next overflow";
}

TEST_F(Far, ManyLossesInARoundTripAreNotChance) {
    rounds_between(100, kPath * 2, kPath * 2);
    const uint32_t before = window(c, l), permitted = before / 32 + 1;
    round(kPath + kPath / 10, kPath);
    for (uint32_t i = 0; i < permitted; ++i) on_loss(c, s, l, now, kPath);
    EXPECT_GE(window(c, l), before);
    on_loss(c, s, l, now, kPath);
    EXPECT_LT(window(c, l), before);
}

TEST_F(Far, TheFirstOverflowHalvesTheWindow) {
    for (int i = 0; i < 8; ++i) round(kPath, kPath);
    const uint32_t before = window(c, l);
    ASSERT_GT(before, 30u);
    on_loss(c, s, l, now, kPath);
    EXPECT_NEAR(window(c, l), before / 2, 1);
}

/// Sends packets for one round trip as the pace permits. Returns their number.
uint32_t sent_in_a_round_trip(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip, bool repairs) {
    uint32_t sent = 0;
    for (const Nanos end = now + round_trip; now < end; now = std::max(now + 1000, not_before(c))) {
        const uint32_t burst = begin_turn(c, s, l, {now, 32, false, round_trip});
        EXPECT_LE(burst, 4u) << "what the window permits in 250 us, and what the turn is late";
        on_sent(c, s, l, {now, burst, burst * 4096, round_trip, repairs, false});
        sent += burst;
    }
    return sent;
}

TEST_F(Far, TheWindowIsSpreadOverTheRoundTrip) {
    rounds_between(200, kPath + kPath / 4, kPath * 2);
    s.last = kPath;
    c.not_before = now;
    const uint32_t packets = window(c, l);
    ASSERT_GT(packets, 60u);
    EXPECT_NEAR(sent_in_a_round_trip(c, s, l, now, kPath, false), packets * 5 / 4, 12);
    now = c.not_before;
    EXPECT_NEAR(sent_in_a_round_trip(c, s, l, now, kPath, true), packets, 12);
}

TEST_F(Far, AnEngineWithoutCpuMakesUpForLateTurns) {
    rounds_between(200, kPath + kPath / 4, kPath * 2);
    const uint32_t packets = window(c, l);
    c.not_before = now;
    const auto burst = [&](Nanos late) { return begin_turn(c, s, l, {now + late, 64, false, kPath}); };
    EXPECT_EQ(burst(0), 2u);
    EXPECT_NEAR(burst(kPath / 10), packets / 40 + packets / 10, 1);
    EXPECT_NEAR(burst(kPath), packets / 40 + packets / 8, 1);
    s.waits_for_window = true;
    EXPECT_EQ(burst(kPath), 2u) << "the turn waited for an ACK, not for the CPU";
}

TEST_F(Far, AReadThatIsLongerThanTheWindowDelaysByARoundTrip) {
    rounds_between(50, kPath + kPath / 4, kPath * 2);
    s.last = kPath;
    c.not_before = now;
    on_sent(c, s, l, {now, 1 << 18, 100, kPath, false, true});
    EXPECT_EQ(not_before(c), now + kPath);
}

TEST_F(Far, RepairsThatDoNotWaitDelayByARoundTrip) {
    rounds_between(50, kPath + kPath / 4, kPath * 2);
    s.last = kPath;
    for (int i = 0; i < 60; ++i) on_sent(c, s, l, {now, 4, 4 * 4096, kPath, true, true});
    EXPECT_LE(not_before(c), now + kPath);
}

TEST_F(Far, ALossNeverEnlargesTheWindow) {
    rounds_between(50, kPath * 2, kPath * 2);
    c.window = kFraction / 8;
    on_loss(c, s, l, now, kPath);
    EXPECT_EQ(c.window, kFraction / 8);
}

TEST_F(Far, ANearPathKeepsNothingOfTheFarOne) {
    rounds_between(100, kPath * 2, kPath * 2);
    ASSERT_TRUE(s.far);
    s.excused = 9;
    c.not_before = now + kPath;
    while (s.far) round(kEmpty, kEmpty);
    EXPECT_EQ(s.excused, 0);
    EXPECT_LE(not_before(c), now);
}

TEST_F(Delay, ShortPathsAreNotPaced) {
    rounds(50, kEmpty);
    on_sent(c, s, l, {now, 200, 200 * 4096, kEmpty, false, false});
    EXPECT_LE(not_before(c), now);
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
