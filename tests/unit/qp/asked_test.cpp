// Tests of Asked, a list of packets that were requested again or sent again. Asked detects that the answer to such a request, or
// the repeated packet, is lost.
#include "qp/asked.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace roci::qp {
namespace {

struct AskedTest : ::testing::Test {
    Asked asked;
    bool answered(uint32_t psn, Nanos now = 1'000'000) { return asked.answered(Psn(psn), now, 10'000); }
};

TEST_F(AskedTest, OnlyWhatWasNotAskedForIsUncovered) {
    asked.add({Psn(10), 5}, Psn(100), 0);
    asked.add({Psn(15), 2}, Psn(100), 0);
    EXPECT_EQ(asked.uncovered({Psn(5), 3}), (Hole{Psn(5), 3}));
    EXPECT_EQ(asked.uncovered({Psn(5), 20}), (Hole{Psn(5), 5}));
    EXPECT_EQ(asked.uncovered({Psn(12), 10}), (Hole{Psn(17), 5}));
    EXPECT_EQ(asked.uncovered({Psn(12), 4}), (Hole{Psn(16), 0}));
    EXPECT_TRUE(asked.covers(Psn(16)));
    EXPECT_FALSE(asked.covers(Psn(17)));
}

TEST_F(AskedTest, AResponseThatWasSentBeforeShowsNothing) {
    asked.add({Psn(10), 1}, Psn(100), 0);
    EXPECT_FALSE(answered(99));
    EXPECT_TRUE(asked.covers(Psn(10)));
    EXPECT_TRUE(answered(100)) << "it belongs to a request that was sent later";
    EXPECT_FALSE(asked.covers(Psn(10)));
}

TEST_F(AskedTest, ALaterAnswerShowsThatAnEarlierOneIsLost) {
    asked.add({Psn(10), 1}, Psn(100), 0);
    asked.add({Psn(20), 1}, Psn(100), 0);
    asked.add({Psn(30), 1}, Psn(100), 0);
    EXPECT_TRUE(answered(20));
    EXPECT_FALSE(asked.covers(Psn(10)));
    EXPECT_TRUE(asked.covers(Psn(30)));
}

TEST_F(AskedTest, AnAnswerInPsnOrderShowsNothingOfAHigherPsn) {
    asked.add({Psn(20), 1}, Psn(100), 0);
    asked.add({Psn(10), 1}, Psn(100), 0);
    answered(10);
    EXPECT_TRUE(asked.covers(Psn(20)));
}

TEST_F(AskedTest, WhatComesTooEarlyIsNoAnswer) {
    asked.add({Psn(10), 1}, Psn(100), 1'000'000);
    asked.add({Psn(20), 1}, Psn(100), 1'000'000);
    EXPECT_FALSE(answered(20, 1'005'000)) << "only late";
    EXPECT_TRUE(asked.covers(Psn(10)));
}

TEST_F(AskedTest, WithinAnAnswerTheFirstPacketsAreLost) {
    asked.add({Psn(10), 5}, Psn(100), 0);
    EXPECT_TRUE(answered(12));
    EXPECT_FALSE(asked.covers(Psn(11)));
    EXPECT_TRUE(asked.covers(Psn(13)));
}

TEST_F(AskedTest, GoingBackIsNotAnsweredByWhatWasOnItsWay) {
    asked.add_again({Psn(10), 50}, Psn(60), 0);
    EXPECT_FALSE(answered(40));
    EXPECT_TRUE(asked.covers(Psn(10)));
    EXPECT_TRUE(answered(60));
}

TEST_F(AskedTest, WhatArrivedIsForgotten) {
    asked.add({Psn(kMask24 - 1), 4}, Psn(100), 0);
    asked.add({Psn(20), 1}, Psn(100), 0);
    asked.advance(Psn(1));
    EXPECT_EQ(asked.count(), 2u);
    asked.advance(Psn(2));
    EXPECT_EQ(asked.count(), 1u);
    for (uint32_t i = 1; i < Asked::kMost; ++i) asked.add({Psn(30 + i), 1}, Psn(100), 0);
    EXPECT_TRUE(asked.full());
}

// ---- packets that were sent again, and the reports of the receiver about them

struct RepeatedTest : AskedTest {
    static constexpr Nanos kLeast = 100;
    std::vector<uint32_t> arrived;
    uint32_t reported(uint32_t newest, Nanos now = 1000, uint32_t places = 3) {
        const auto has = [&](Psn psn) { return std::find(arrived.begin(), arrived.end(), psn.value()) != arrived.end(); };
        return asked.reported(has, Psn(newest), places, now, kLeast);
    }
};

TEST_F(RepeatedTest, PacketsOfOneBurstShareAnEntry) {
    for (uint32_t psn = 10; psn < 10 + 2 * Asked::kMost; ++psn) asked.add_next(Psn(psn), Psn(100), 5);
    EXPECT_EQ(asked.count(), 1u);
    asked.add_next(Psn(200), Psn(100), 5);
    asked.add_next(Psn(201), Psn(101), 5);
    EXPECT_EQ(asked.count(), 3u);
}

TEST_F(RepeatedTest, IsLostAgainIfMoreThanAFewNewPacketsHaveArrived) {
    asked.add_next(Psn(10), Psn(100), 5);
    reported(102);
    EXPECT_TRUE(asked.covers(Psn(10)));
    reported(103);
    EXPECT_FALSE(asked.covers(Psn(10)));
}

TEST_F(RepeatedTest, LaterRepeatsCountLikeNewPackets) {
    for (uint32_t i = 0; i < 5; ++i) asked.add_next(Psn(10 + 2 * i), Psn(100), i);
    arrived = {12, 14, 16};
    EXPECT_EQ(reported(99), 3u) << "when the newest that arrived was sent";
    EXPECT_TRUE(asked.covers(Psn(10)));
    EXPECT_EQ(asked.count(), 2u);
    for (uint32_t i = 0; i < 4; ++i) asked.add_next(Psn(30 + 2 * i), Psn(100), 9);
    arrived = {30, 32, 34, 36};
    reported(99);
    EXPECT_FALSE(asked.covers(Psn(10)));
    EXPECT_FALSE(asked.covers(Psn(18)));
}

// Successive reports show that four later repeats have arrived. A repeat counts as lost if more than `places` later
// repeats have arrived. It does not matter which reports show these later repeats.
TEST_F(RepeatedTest, LaterRepeatsOfEarlierReportsCountToo) {
    for (uint32_t i = 0; i < 5; ++i) asked.add_next(Psn(10 + 2 * i), Psn(100), i);
    arrived = {16, 18};
    reported(99);
    EXPECT_TRUE(asked.covers(Psn(10)));
    arrived.push_back(14);
    reported(99);
    EXPECT_TRUE(asked.covers(Psn(10))) << "overtaken by three";
    arrived.push_back(12);
    reported(99);
    EXPECT_FALSE(asked.covers(Psn(10)));
    EXPECT_EQ(asked.count(), 0u);
}

TEST_F(RepeatedTest, APartThatHasArrivedCountsOnce) {
    asked.add_next(Psn(10), Psn(100), 1);
    for (uint32_t psn = 20; psn < 23; ++psn) asked.add_next(Psn(psn), Psn(100), 2);
    arrived = {20, 21};
    for (int i = 0; i < 5; ++i) reported(99);
    EXPECT_TRUE(asked.covers(Psn(10)));
    EXPECT_EQ(asked.count(), 2u);
}

TEST_F(RepeatedTest, AReportSaysNothingAboutPacketsThatWereJustSent) {
    asked.add_next(Psn(10), Psn(100), 950);
    arrived = {10};
    reported(110, 950 + kLeast - 1);
    EXPECT_TRUE(asked.covers(Psn(10)));
    arrived = {};
    reported(110, 950 + kLeast - 1);
    EXPECT_TRUE(asked.covers(Psn(10)));
    reported(110, 950 + kLeast);
    EXPECT_FALSE(asked.covers(Psn(10)));
}

}  // namespace
}  // namespace roci::qp
