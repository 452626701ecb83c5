#include "fixture.hpp"

namespace roci::cc {
namespace {

constexpr Limits kLimits{.max_window = 16};

struct FixedWindow : testing::Test {
    Controller c;
    State s;
};

TEST_F(FixedWindow, IsWholeFromTheStartAndHoldsNothingBack) {
    EXPECT_EQ(begin_turn(c, s, kLimits, {0, 32, true, 0}), 32u);
    on_sent(c, s, kLimits, {0, 256, 1 << 20, 0, false, false});
    EXPECT_EQ(window(c, kLimits), 16u);
    EXPECT_EQ(not_before(c), 0u);
}

TEST_F(FixedWindow, LossAndCongestionNotificationsLeaveItAsItIs) {
    on_loss(c, s, kLimits, 0, 0);
    on_cnp(c, s, kLimits, 0, 0);
    EXPECT_EQ(window(c, kLimits), 16u);
}

TEST_F(FixedWindow, AfterATimeoutItDoublesPerRoundTrip) {
    on_timeout(c, s, kLimits, 0);
    for (const uint32_t expected : {2u, 4u, 8u, 16u, 16u}) {
        EXPECT_EQ(window(c, kLimits), expected);
        on_ack(c, s, kLimits, {.packets = window(c, kLimits)});
    }
}

// ---- policies that adapt --------------------------------------------------------------------------------------------

TEST_F(Delay, BeginsWithASmallWindowThatGrowsByAHalfPerRoundTrip) {
    for (const uint32_t expected : {2u, 3u, 4u, 6u, 9u}) {
        EXPECT_EQ(window(c, l), expected);
        round(kEmpty);
    }
}

TEST_F(Delay, ALongRoundTripEndsTheFastGrowthThenOnlyShrinks) {
    rounds(4, kEmpty);
    round(30'000);
    const uint32_t before = window(c, l);
    round(kEmpty);
    EXPECT_LE(window(c, l), before + 1);
    rounds(2, 200'000);
    EXPECT_LT(window(c, l), before);
}

/// A flow that shared the link has ended, or packets were lost by chance, so the queue becomes empty.
TEST_F(Delay, WithAnEmptyQueueTheWindowQuicklyReturnsToTheOneBeforeTheCuts) {
    rounds(8, kEmpty);
    const uint32_t full = window(c, l);
    rounds(3, 400'000);
    ASSERT_LE(window(c, l), full / 2);
    rounds(5, kEmpty);
    const uint32_t again = window(c, l);
    EXPECT_GE(again, full * 3 / 4);
    rounds(4, kEmpty);
    EXPECT_LE(window(c, l), again + again / 2 + 2) << "above this window it grows slowly";
}

/// After an idle time the QP forgets its measurements, and with them the limit of the fast growth.
TEST_F(Delay, AfterAnIdleTimeTheWindowGrowsAsThatOfANewQp) {
    rounds(6, kEmpty);
    rounds(12, 400'000);
    ASSERT_LT(window(c, l), 3u);
    now += 1'000'000'000;
    begin_turn(c, s, l, {now, 64, true, 0});
    c.window = (l.first_window * kFraction) & 0xffffff;
    s.slow_start = true;
    for (const uint32_t expected : {2u, 3u, 4u, 6u, 9u}) {
        EXPECT_EQ(window(c, l), expected);
        round(kEmpty);
    }
}

TEST_F(Delay, ASingleLongRoundTripIsChance) {
    rounds(6, kEmpty);
    const uint32_t before = window(c, l);
    for (int i = 0; i < 20; ++i) {
        round(400'000);
        round(kEmpty);
    }
    EXPECT_GE(window(c, l), before);
}

/// Hosts delay single frames, but a queue in the network delays every frame. So only the shortest round trip shows a
/// queue.
TEST_F(Delay, OnlyTheShortestSampleOfARoundTripCounts) {
    rounds(4, kEmpty);
    const auto play = [&](uint32_t best) {
        const uint32_t packets = window(c, l);
        for (const uint32_t sample : {200'000u, best, 100'000u, 150'000u}) {
            now += 25'000;
            on_ack(c, s, l, {now, packets / 4, packets, sample, 100'000, kEmpty});
        }
    };
    const uint32_t before = c.window;
    for (int i = 0; i < 10; ++i) play(kEmpty + 5'000);
    EXPECT_GT(c.window, before);
    const uint32_t grown = c.window;
    for (int i = 0; i < 3; ++i) play(90'000);
    EXPECT_LT(c.window, grown);
}

/// Even the shortest round trip is longer than the target. The round trips differ so much that the cause must be jitter
/// of the hosts and not a queue.
TEST_F(Delay, JitterLengthensTheTarget) {
    rounds(6, kEmpty);
    rounds(2, 60'000);
    const auto play = [&](uint32_t jitter) {
        const uint32_t packets = window(c, l);
        for (const uint32_t more : {jitter, 0u, jitter, jitter / 2}) {
            now += 12'000;
            on_ack(c, s, l, {now, packets / 4, packets, 42'000 + more, 48'000, kEmpty});
        }
    };
    const uint32_t before = c.window;
    for (int i = 0; i < 6; ++i) play(1'000);
    EXPECT_LT(c.window, before) << "a little jitter, so a queue must be the cause";
    for (int i = 0; i < 20; ++i) play(12'000);
    const uint32_t shaken = c.window;
    for (int i = 0; i < 20; ++i) play(12'000);
    const uint32_t grown = c.window;
    EXPECT_GT(grown, shaken);
    for (int i = 0; i < 20; ++i) play(0);
    EXPECT_LT(c.window, grown) << "no jitter any more";
}

TEST_F(Delay, IsCutByAtMostAHalfAndOncePerRoundTrip) {
    rounds(6, kEmpty);
    const uint32_t before = window(c, l);
    rounds(2, 400'000);
    EXPECT_LT(window(c, l), before);
    EXPECT_GE(window(c, l), before / 2);
    const uint32_t cut = window(c, l);
    on_ack(c, s, l, {now + 1000, 1, cut, 400'000, 400'000, kEmpty});
    EXPECT_EQ(window(c, l), cut);
}

TEST_F(Delay, BelowOnePacketItPausesForABoundedTime) {
    rounds(6, 400'000);
    EXPECT_EQ(window(c, l), 1u);
    EXPECT_GT(not_before(c), now);
    EXPECT_LE(not_before(c), now + 10'000'000);
}

TEST_F(Delay, ALossWithShortQueuesIsNoCongestion) {
    rounds(4, kEmpty);
    const uint32_t before = window(c, l);
    on_loss(c, s, l, now, kEmpty);
    EXPECT_EQ(window(c, l), before);
    round(400'000);
    now += 400'000;
    const uint32_t crowded = window(c, l);
    on_loss(c, s, l, now, 400'000);
    EXPECT_EQ(window(c, l), crowded / 2);
}

/// Round trips stay long although the window shrinks, because other QPs fill the queue or the host is busy. After
/// such cuts without effect the window must grow until a loss or a short queue.
TEST_F(Delay, AWindowThatShrinksInVainGrowsUntilALossOrAShortQueue) {
    rounds(6, kEmpty);
    rounds(18, 400'000);
    const uint32_t before = window(c, l);
    rounds(20, 400'000);
    EXPECT_GE(window(c, l), before + 8) << "half a packet per round trip";
    const uint32_t full = window(c, l);
    on_loss(c, s, l, now, 400'000);
    EXPECT_LT(window(c, l), full / 4) << "what stood in the queue";
    rounds(20, 400'000);
    EXPECT_GE(window(c, l), full / 4) << "still the same queue";
    round(kEmpty);
    const uint32_t empty = window(c, l);
    rounds(3, 400'000);
    EXPECT_LT(window(c, l), empty) << "it goes by round trips again";
}

/// A window below one packet makes the QP pause between packets. Such a pause must not count as an idle time, after
/// which the controller starts again.
TEST_F(Delay, ItsOwnPausesDoNotMakeItBeginAnew) {
    rounds(12, 400'000);
    ASSERT_LT(c.window, kFraction);
    const uint32_t cuts = s.vain_cuts;
    now += 5'000'000;
    turn();
    EXPECT_EQ(s.vain_cuts, cuts);
    now += 20'000'000;
    turn();
    EXPECT_EQ(s.vain_cuts, 0u);
}

/// The queue overflows before the round trips reach the target. So only losses can limit the window.
TEST_F(Delay, LossesCountWhereTheTargetIsNeverReached) {
    rounds(4, kEmpty);
    for (int i = 0; i < 3; ++i) {
        round(15'000);
        const uint32_t full = window(c, l);
        on_loss(c, s, l, now, 15'000);
        EXPECT_NEAR(window(c, l), full * 10 / 15, 1) << "a third of the round trip was queueing";
    }
    const uint32_t before = window(c, l);
    for (int i = 0; i < 20; ++i) {
        round(kEmpty);
        on_loss(c, s, l, now, kEmpty);
    }
    EXPECT_GE(window(c, l), before) << "without a queue a loss takes nothing";
}

/// If a queue was longer once without a loss, a loss at a shorter queue is no overflow and must not reduce the
/// window. One later loss at a long queue must not reduce the window either.
TEST_F(Delay, ALossAtAShorterQueueThanBeforeIsChanceAndExcusesAnother) {
    rounds(4, kEmpty);
    round(25'000);
    round(16'000);
    const uint32_t before = c.window;
    on_loss(c, s, l, now, 16'000);
    EXPECT_EQ(c.window, before);
    round(26'000);
    const uint32_t full = c.window;
    on_loss(c, s, l, now, 26'000);
    EXPECT_EQ(c.window, full) << "losses happen by chance here";
    on_loss(c, s, l, now, 26'000);
    EXPECT_LT(c.window, full) << "too many for chance";
}

/// After many losses at a shorter queue, a loss must reduce the window again, because the buffer may have become
/// smaller.
TEST_F(Delay, ALongQueueIsForgotten) {
    rounds(4, kEmpty);
    round(110'000);
    for (int i = 0; i < 100; ++i) {
        round(20'000);
        on_loss(c, s, l, now, 20'000);
    }
    round(20'000);
    const uint32_t full = c.window;
    on_loss(c, s, l, now, 20'000);
    EXPECT_NEAR(c.window, full / 2, kFraction);
}

struct Contended : Delay {
    static constexpr uint32_t kFull = 400'000, kLess = 250'000;
    Contended() {
        rounds(6, kEmpty);
        rounds(40, kFull);
    }
};

/// Another flow has lost a packet and reduced its window, so the queue has become shorter. This QP must reduce its
/// window, too.
TEST_F(Contended, YieldsWhenAnotherFlowDoes) {
    ASSERT_TRUE(s.contended);
    const uint32_t before = c.window;
    round(kLess);
    EXPECT_NEAR(c.window, before * 7 / 10, kFraction);
    const uint32_t cut = c.window;
    round(kLess / 2);
    EXPECT_GE(c.window, cut) << "its own cut shortened the queue";
    rounds(8, kFull);
    EXPECT_GT(c.window, cut);
}

TEST_F(Contended, ASmallerChangeOfTheQueueIsNoYield) {
    const uint32_t before = c.window;
    for (int i = 0; i < 10; ++i) round(i % 2 ? kFull : kFull * 9 / 10);
    EXPECT_GE(c.window, before);
}

TEST_F(Contended, ASmallWindowDoesNotYield) {
    on_timeout(c, s, l, now);
    rounds(2, kFull);
    c.window = kWindowAfterTimeout * kFraction;
    round(kLess);
    EXPECT_GE(c.window, kWindowAfterTimeout * kFraction);
}

TEST_F(Delay, AfterATimeoutTheWindowIsSmallAndGrows) {
    rounds(6, kEmpty);
    on_timeout(c, s, l, now);
    EXPECT_EQ(window(c, l), kWindowAfterTimeout);
    rounds(20, kEmpty);
    EXPECT_GT(window(c, l), 2u * kWindowAfterTimeout);
}

TEST_F(Delay, AWindowThatIsNotUsedDoesNotGrow) {
    rounds(3, kEmpty);
    const uint32_t before = window(c, l);
    for (uint32_t i = 0; i < 100; ++i) on_ack(c, s, l, {now += kEmpty, 1, 1, kEmpty, kEmpty, kEmpty});
    EXPECT_EQ(window(c, l), before);
}

TEST_F(Delay, AfterAPauseItBeginsAnew) {
    rounds(6, kEmpty);
    now += 2'000'000;
    turn();
    EXPECT_EQ(window(c, l), l.first_window);
}

/// The peer has no CPU for some time. The QP then sends nothing, but it is not idle.
TEST_F(Delay, WhileItWaitsForAcksItIsNotIdle) {
    rounds(6, kEmpty);
    const uint32_t before = window(c, l);
    now += 3'000'000;
    turn(false);
    EXPECT_EQ(window(c, l), before);
    on_ack(c, s, l, {now, before, before, 0, kEmpty, kEmpty});
    turn();
    EXPECT_GE(window(c, l), before) << "the ACK ended the wait just now";
}

struct Dcqcn : Adapting {
    Dcqcn() { begin(Policy::dcqcn); }
    void notify() { on_cnp(c, s, l, now, kEmpty); }
};

TEST_F(Dcqcn, HasNoRateUntilTheFirstNotification) {
    rounds(6, kEmpty);
    EXPECT_EQ(rate(c, s), 0u);
    EXPECT_EQ(turn(), 32u);
    notify();
    EXPECT_NE(s.rate, 0u);
    EXPECT_EQ(turn(), 1u);
}

TEST_F(Dcqcn, SendsAtItsRate) {
    rounds(4, kEmpty);
    notify();
    const Nanos begun = now;
    const uint64_t rate = s.rate;
    for (int i = 0; i < 10; ++i) {
        turn();
        on_sent(c, s, l, {now, 1, 4096, 0, false, false});
        now = std::max(now, not_before(c));
    }
    EXPECT_NEAR(double(now - begun), 10 * 4096e6 / double(rate), 2 * 8192e6 / double(rate));
}

TEST_F(Dcqcn, NotificationsCutAndTimeRaisesUntilThereIsNoLimit) {
    rounds(6, kEmpty);
    notify();
    uint32_t rate = s.rate;
    for (int i = 0; i < 5; ++i) {
        now += l.notify_every;
        notify();
        EXPECT_LT(s.rate, rate);
        rate = s.rate;
    }
    now += 6 * l.raise_every;
    turn();
    EXPECT_GT(s.rate, rate);
    now += 1'000 * l.raise_every;
    turn();
    EXPECT_EQ(s.rate, 0u) << "no notification for long";
}

TEST_F(Dcqcn, AFloodOfNotificationsCutsOnlyAtThePaceOfHonestOnes) {
    rounds(6, kEmpty);
    notify();
    const uint32_t rate = s.rate;
    for (int i = 0; i < 1000; ++i) notify();
    EXPECT_EQ(s.rate, rate);
    for (int i = 0; i < 1000; ++i, now += l.notify_every) notify();
    EXPECT_GE(s.rate, 1'000u) << "never nothing";
}

struct Adaptive : Adapting {
    Adaptive() { begin(Policy::adaptive); }
    uint32_t notify() {
        on_cnp(c, s, l, now, kEmpty);
        return c.window;
    }
};

TEST_F(Adaptive, FollowsDelay) {
    rounds(6, kEmpty);
    const uint32_t before = window(c, l);
    rounds(2, 400'000);
    EXPECT_LT(window(c, l), before);
    EXPECT_EQ(rate(c, s), 0u);
}

TEST_F(Adaptive, TheFirstNotificationHalvesTheWindowRareOnesTakeLittle) {
    rounds(6, kEmpty);
    const uint32_t before = c.window;
    EXPECT_NEAR(notify(), before / 2, 1);
    for (int i = 0; i < 10; ++i) {
        now += 20 * l.notify_every;
        notify();
    }
    const uint32_t often = c.window;
    now += 20 * l.notify_every;
    EXPECT_GT(notify(), often * 9 / 10);
    EXPECT_LT(c.window, often);
}

TEST_F(Adaptive, AFloodOfNotificationsCutsOnlyAtThePaceOfHonestOnes) {
    rounds(6, kEmpty);
    const uint32_t once = notify();
    for (int i = 0; i < 1000; ++i) notify();
    EXPECT_EQ(c.window, once);
    for (int i = 0; i < 1000; ++i, now += l.notify_every) notify();
    EXPECT_GT(c.window, 0u) << "never nothing";
}

TEST(Marks, ANotificationIsSentAtMostOncePerInterval) {
    State s;
    Limits l;
    EXPECT_TRUE(take_mark(s, l, 100'000));
    EXPECT_FALSE(take_mark(s, l, 100'000)) << "of the same burst";
    EXPECT_FALSE(take_mark(s, l, 140'000));
    EXPECT_TRUE(take_mark(s, l, 151'000));
    l.notify_every = 0;
    EXPECT_FALSE(take_mark(s, l, 1'000'000));
}

}  // namespace
}  // namespace roci::cc
