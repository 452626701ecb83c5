#include "cc/controller.hpp"

#include <gtest/gtest.h>

namespace roci::cc {
namespace {

constexpr Limits kLimits{.max_window = 16};

struct FixedWindow : testing::Test {
    Controller c;
    State s;
};

TEST_F(FixedWindow, IsWholeFromTheStartAndHoldsNothingBack) {
    EXPECT_EQ(begin_turn(c, s, kLimits, 0, 32), 32u);
    on_sent(c, s, kLimits, 0, 1 << 20);
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

}  // namespace
}  // namespace roci::cc
