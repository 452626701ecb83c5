// Tests of the timing wheel. Each timer must fire once, at the first tick that is not before its deadline, on each
// level of the wheel.
#include "base/timer_wheel.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace roci::engine {
namespace {

constexpr Nanos kTick = TimerWheel::kTick;

TEST(TimerWheel, FiresAtTheFirstTickNotBeforeItsDeadline) {
    TimerWheel wheel;
    wheel.start(0);
    Timer t;
    wheel.arm(t, 5 * kTick + 1);
    EXPECT_EQ(wheel.next_deadline(), 6 * kTick);
    EXPECT_EQ(wheel.advance(5 * kTick, [](Timer&) {}), 0u);
    EXPECT_EQ(wheel.advance(6 * kTick, [](Timer&) {}), 1u);
    EXPECT_FALSE(t.armed());
    EXPECT_EQ(wheel.next_deadline(), kNever);
}

TEST(TimerWheel, CancelledAndMovedTimersDoNotFireAtTheirOldTime) {
    TimerWheel wheel;
    wheel.start(1000 * kTick);
    Timer a, b;
    wheel.arm(a, 1003 * kTick);
    wheel.arm(b, 1003 * kTick);
    wheel.cancel(a);
    wheel.arm(b, 90'000 * kTick);
    EXPECT_EQ(wheel.advance(89'999 * kTick, [](Timer&) {}), 0u);
    EXPECT_EQ(wheel.advance(90'000 * kTick, [](Timer&) {}), 1u);
}

TEST(TimerWheel, ATimerInThePastFiresAtTheNextTick) {
    TimerWheel wheel;
    wheel.start(50 * kTick);
    Timer t;
    wheel.arm(t, 3 * kTick);
    EXPECT_EQ(wheel.advance(51 * kTick, [](Timer&) {}), 1u);
}

TEST(TimerWheel, ACallbackMayArmItsTimerAgain) {
    TimerWheel wheel;
    wheel.start(0);
    Timer t;
    wheel.arm(t, kTick);
    unsigned fired = 0;
    for (Nanos now = 0; now < 100 * kTick; now += kTick)
        wheel.advance(now, [&](Timer& x) { ++fired, wheel.arm(x, x.deadline + kTick); });
    EXPECT_EQ(fired, 99u);
}

/// Compares the wheel with a simple model. The deadlines (from one tick to hours), the cancellations and the steps of
/// time are random.
TEST(TimerWheel, AgreesWithAModelUnderRandomUse) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937_64 rng(seed);
        TimerWheel wheel;
        Nanos now = rng() % (uint64_t{1} << 50);
        wheel.start(now);
        std::vector<Timer> timers(200);
        for (Timer& t : timers) t.owner = &t;
        std::vector<Nanos> due(timers.size(), kNever);
        for (int step = 0; step < 3000; ++step) {
            const size_t i = rng() % timers.size();
            const Nanos deadline = now + (rng() >> (rng() % 40 + 24));
            if (rng() % 4 == 0) {
                wheel.cancel(timers[i]);
                due[i] = kNever;
            } else {
                wheel.arm(timers[i], deadline);
                due[i] = deadline;
            }
            Nanos earliest = kNever;
            for (Nanos d : due) earliest = std::min(earliest, d);
            ASSERT_LE(wheel.next_deadline(),
                      earliest == kNever ? kNever : std::max((earliest + kTick - 1) / kTick, now / kTick + 1) * kTick)
                << "seed " << seed;
            now += rng() >> (rng() % 36 + 28);
            wheel.advance(now, [&](Timer& t) {
                const size_t k = size_t(&t - timers.data());
                ASSERT_NE(due[k], kNever) << "fired without being armed, seed " << seed;
                ASSERT_LE(due[k], now) << "fired early, seed " << seed;
                due[k] = kNever;
            });
            for (const Nanos d : due) {
                if (d == kNever) continue;
                ASSERT_GT((d + kTick - 1) / kTick, now / kTick) << "late, seed " << seed;
            }
        }
    }
}

}  // namespace
}  // namespace roci::engine
