#include "cc/controller.hpp"

#include <gtest/gtest.h>

namespace roci::cc {
namespace {

constexpr Limits kLimits{.max_window = 16};

TEST(FixedWindow, IsWholeFromTheStartAndHoldsNothingBack) {
    Controller c;
    on_sent(c, 0, 1 << 20);
    EXPECT_EQ(window(c, kLimits), 16u);
    EXPECT_EQ(not_before(c), 0u);
}

TEST(FixedWindow, LossAndCongestionNotificationsLeaveItAsItIs) {
    Controller c;
    on_loss(c, 0);
    on_cnp(c, 0);
    EXPECT_EQ(window(c, kLimits), 16u);
}

TEST(FixedWindow, AfterATimeoutItDoublesPerRoundTrip) {
    Controller c;
    on_timeout(c, 0);
    for (const uint32_t expected : {2u, 4u, 8u, 16u, 16u}) {
        EXPECT_EQ(window(c, kLimits), expected);
        on_ack(c, kLimits, 0, window(c, kLimits));
    }
}

}  // namespace
}  // namespace roci::cc
