// Tests of CpuPace. It decides whether a polling thread without work polls again, yields or sleeps. The decision depends on the
// durations of earlier yields. The tests use no clock and no scheduler.
#include "abi/cpu_pace.hpp"

#include <gtest/gtest.h>

namespace roci::abi {
namespace {

using Way = CpuPace::Way;

constexpr uint64_t kSyscall = 100, kLone = 300, kHandedOver = 2000, kSlice = 3'000'000;
constexpr uint32_t kMost = 100;

struct Pace : testing::Test {
    CpuPace pace{kMost};
    /// Polls without result until the decision is not to poll again. Returns the number of polls.
    uint32_t looks_before(Way way) {
        uint32_t looks = 0;
        Way got;
        while ((got = pace.in_vain()) == Way::look_again) ++looks;
        EXPECT_EQ(got, way);
        return looks;
    }
    void yields(uint64_t ns) {
        EXPECT_GE(looks_before(Way::yield), 0u);
        pace.yielded(ns, kSyscall);
    }
    uint32_t sleeps_in_a_row() {
        uint32_t n = 0;
        while (pace.in_vain() == Way::sleep) ++n;
        return n;
    }
};

TEST_F(Pace, OnACpuThatNobodyElseWantsYieldsBecomeRare) {
    uint32_t before = 0;
    for (int i = 0; i < 20; ++i) {
        const uint32_t looks = looks_before(Way::yield);
        EXPECT_GE(looks, before);
        before = looks;
        pace.yielded(kLone, kSyscall);
    }
    EXPECT_EQ(before, kMost);
}

TEST_F(Pace, OnASharedCpuEachLookInVainYields) {
    for (int i = 0; i < 20; ++i) yields(kLone);
    yields(kHandedOver);
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(looks_before(Way::yield), 0u);
        pace.yielded(kHandedOver, kSyscall);
    }
}

TEST_F(Pace, TheLastYieldTellsWhetherTheCpuIsShared) {
    yields(kLone);
    EXPECT_FALSE(pace.shares());
    yields(kHandedOver);
    EXPECT_TRUE(pace.shares());
    yields(kSlice);
    EXPECT_TRUE(pace.shares());
}

TEST_F(Pace, WorkThatIsFoundKeepsWhatWasLearnt) {
    yields(kHandedOver);
    pace.found();
    EXPECT_EQ(looks_before(Way::yield), 0u);
    for (int i = 0; i < 20; ++i) {
        pace.yielded(kLone, kSyscall);
        looks_before(Way::yield);
    }
    EXPECT_EQ(pace.in_vain(), Way::look_again);
    pace.found();
    EXPECT_EQ(looks_before(Way::yield), kMost) << "it counts looks since it last found something";
}

TEST_F(Pace, BesideABusyProgramItSleepsAndSeldomTriesAYield) {
    yields(kSlice);
    uint32_t expected = CpuPace::kFewestSleeps;
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(sleeps_in_a_row(), expected);  // the poll after the last sleep yields
        pace.yielded(kSlice, kSyscall);
        expected = std::min(4 * expected, CpuPace::kMostSleeps);
    }
    EXPECT_EQ(sleeps_in_a_row(), CpuPace::kMostSleeps);
}

TEST_F(Pace, ASlowProcessorNeedsLongerForAHandOver) {
    constexpr uint64_t kSlowSyscall = 400;
    looks_before(Way::yield);
    pace.yielded(CpuPace::kSliceCalls * kSlowSyscall - 1, kSlowSyscall);
    EXPECT_EQ(pace.in_vain(), Way::yield);
    pace.yielded(CpuPace::kSliceCalls * kSlowSyscall, kSlowSyscall);
    EXPECT_EQ(sleeps_in_a_row(), CpuPace::kFewestSleeps);
    pace.yielded(CpuPace::kLongestSlice, 100 * kSlowSyscall);  // only system calls are slow
    EXPECT_EQ(pace.in_vain(), Way::sleep);
}

TEST_F(Pace, WhenTheBusyProgramIsGoneItYieldsAgain) {
    yields(kSlice);
    EXPECT_EQ(sleeps_in_a_row(), CpuPace::kFewestSleeps);
    pace.yielded(kHandedOver, kSyscall);
    for (int i = 0; i < 5; ++i) yields(kHandedOver);
    yields(kSlice);
    EXPECT_EQ(sleeps_in_a_row(), CpuPace::kFewestSleeps) << "the next busy program is a new one";
}

}  // namespace
}  // namespace roci::abi
