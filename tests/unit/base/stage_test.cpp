// Tests of the stage clock with times that the test chooses, and of the marker ROCI_STAGE with the cycle counter of
// the processor.
#define ROCI_STAGES
#include "base/stage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace roci {
namespace {

const StageTally& tally(const StageClock& c, Stage s) { return c.of[size_t(s)]; }

TEST(StageClock, WhatNestedStagesTakeIsTheirs) {
    StageClock c;
    c.start(1000);
    const Stage outer = c.enter(Stage::requester, 1010);
    const Stage inner = c.enter(Stage::icrc, 1030);
    c.leave(Stage::icrc, inner, 1100);
    c.leave(Stage::requester, outer, 1105);
    c.end_interval(Stage::outside, 1200);
    EXPECT_EQ(tally(c, Stage::outside).cycles, 10u + 95u);
    EXPECT_EQ(tally(c, Stage::requester).cycles, 20u + 5u);
    EXPECT_EQ(tally(c, Stage::icrc).cycles, 70u);
    EXPECT_EQ(c.current, Stage::outside);
    EXPECT_EQ(c.whole(), 200u);
}

TEST(StageClock, AStageWithinItselfIsOneStageEnteredTwice) {
    StageClock c;
    c.start(0);
    const Stage outer = c.enter(Stage::copy, 5);
    const Stage inner = c.enter(Stage::copy, 6);
    c.leave(Stage::copy, inner, 8);
    c.leave(Stage::copy, outer, 9);
    EXPECT_EQ(tally(c, Stage::copy).cycles, 4u);
    EXPECT_EQ(tally(c, Stage::copy).entries, 2u);
}

/// A switch from one stage to another reads the counter. Each reading ends an interval, so each interval contains the
/// cost of one switch. A stage with n nested stages has n + 1 intervals.
TEST(StageClock, IntervalsAreWhatSwitchesAreSubtractedBy) {
    constexpr uint64_t kSwitch = 30, kWork = 100;
    StageClock c;
    uint64_t now = 0;
    const auto next = [&] { return now += kSwitch + kWork; };
    c.start(now);
    const Stage a = c.enter(Stage::parse, next());
    for (int i = 0; i < 3; ++i) {
        const Stage b = c.enter(Stage::icrc, next());
        c.leave(Stage::icrc, b, next());
    }
    c.leave(Stage::parse, a, next());
    EXPECT_EQ(tally(c, Stage::parse).entries, 1u);
    EXPECT_EQ(tally(c, Stage::icrc).entries, 3u);
    EXPECT_EQ(tally(c, Stage::parse).without_switches(kSwitch), 4.0 * kWork);
    EXPECT_EQ(tally(c, Stage::icrc).without_switches(kSwitch), 3.0 * kWork);
    EXPECT_EQ(tally(c, Stage::outside).without_switches(kSwitch), 1.0 * kWork);
}

void inner() { ROCI_STAGE(icrc); }
void outer(int times) {
    ROCI_STAGE(parse);
    for (int i = 0; i < times; ++i) inner();
}

TEST(StageScope, AllCyclesOfAStretchAreSomeStages) {
    const uint64_t start = stage_now();
    stage_clock.start(start);
    outer(1000);
    const uint64_t end = stage_now();
    stage_clock.end_interval(Stage::outside, end);
    EXPECT_EQ(stage_clock.current, Stage::outside);
    EXPECT_EQ(tally(stage_clock, Stage::parse).entries, 1u);
    EXPECT_EQ(tally(stage_clock, Stage::icrc).entries, 1000u);
    EXPECT_EQ(tally(stage_clock, Stage::parse).intervals, 1001u);
    EXPECT_EQ(stage_clock.whole(), end - start);
}

TEST(StageScope, WhatACalibratedSwitchTakesIsSubtracted) {
    const double a_switch = calibrate_stage_switch();
    EXPECT_GT(a_switch, 1);
    EXPECT_EQ(stage_clock.whole(), 0u) << "calibrating leaves the clock as new";
    double least = 1e9;
    for (int row = 0; row < 200; ++row) {  // other programs may interrupt some rows, so the test uses the shortest row
        stage_clock.start(stage_now());
        outer(1000);
        least = std::min(least, tally(stage_clock, Stage::icrc).without_switches(a_switch) / 1000);
    }
    EXPECT_LT(std::abs(least), a_switch) << "once a switch is subtracted, less is left than a switch";
}

TEST(StageTable, EachStageHasANameOfItsOwn) {
    static_assert(std::size(kStageInfo) == kStages);
    for (size_t i = 0; i < kStages; ++i)
        for (size_t j = 0; j < i; ++j) EXPECT_STRNE(kStageInfo[i].name, kStageInfo[j].name);
}

}  // namespace
}  // namespace roci
