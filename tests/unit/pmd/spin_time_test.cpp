// Tests of SpinTime, which chooses how long an idle lcore polls before it sleeps. The tests use no clock.
#include "pmd_glue/spin_time.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace roci::pmd
