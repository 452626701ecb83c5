#include "rings/doorbell.hpp"

#include <gtest/gtest.h>

#include <set>

#include "fixture.hpp"

namespace roci::rings {
namespace {

struct DoorbellTest : ::testing::Test {
    std::unique_ptr<abi::DoorbellPage> page = std::make_unique<abi::DoorbellPage>();
    abi::EnginePage::Line line{};
    abi::DoorbellTarget target{page.get(), &line};
    std::multiset<uint32_t> collect() {
        std::multiset<uint32_t> s;
        collect_doorbells(*page, [&](uint32_t slot) { s.insert(slot); });
        return s;
    }
};

TEST_F(DoorbellTest, RungSlotsAreCollectedOnce) {
    EXPECT_FALSE(doorbell_pending(*page));
    const std::multiset<uint32_t> rung{0, 1, 63, 64, 4095, 4096, 40000, 65535};
    for (uint32_t s : rung) EXPECT_FALSE(abi::ring_doorbell(target, s));
    EXPECT_FALSE(abi::ring_doorbell(target, 63)) << "twice is as once";
    EXPECT_TRUE(doorbell_pending(*page));
    EXPECT_EQ(collect(), rung);
    EXPECT_FALSE(doorbell_pending(*page));
    EXPECT_TRUE(collect().empty());
}

TEST_F(DoorbellTest, RingingASleeperAsksForAWakeup) {
    line.sleeping = 1;
    EXPECT_TRUE(abi::ring_doorbell(target, 7));
}

TEST_F(DoorbellTest, AHostilePageCostsABoundedWalk) {
    std::memset(static_cast<void*>(page.get()), 0xff, sizeof *page);
    const auto all = collect();
    EXPECT_EQ(all.size(), size_t{abi::kDoorbellSlots});
    EXPECT_EQ(*all.rbegin(), abi::kDoorbellSlots - 1);
    EXPECT_TRUE(collect().empty());
}

TEST_F(DoorbellTest, ALookHasALimitAndGoesOnWhereItEnded) {
    std::memset(static_cast<void*>(page.get()), 0xff, sizeof *page);
    uint32_t from = 0;
    std::set<uint32_t> seen;
    for (uint32_t looks = 0; looks < abi::kDoorbellSlots / 128; ++looks) {
        EXPECT_TRUE(doorbell_pending(*page));
        EXPECT_EQ(collect_doorbells(*page, from, 100, [&](uint32_t slot) { seen.insert(slot); }), 128u) << "whole words";
        EXPECT_FALSE(abi::ring_doorbell(target, 0));  // like a client that rings the doorbell of its first QP again and again
    }
    EXPECT_EQ(seen.size(), size_t{abi::kDoorbellSlots}) << "each has its turn";
}

TEST_F(DoorbellTest, WordsWithoutDoorbellsUseUpTheLimit) {
    for (uint64_t& word : page->summary) word = ~uint64_t{0};
    uint32_t from = 0;
    EXPECT_EQ(collect_doorbells(*page, from, 100, [](uint32_t slot) { FAIL() << slot; }), 100u);
    EXPECT_EQ(from, 100u);
    EXPECT_TRUE(doorbell_pending(*page)) << "the rest is looked at later";
}

TEST_F(DoorbellTest, WordsBelowTheStartComeLast) {
    for (const uint32_t slot : {1u, 700u, 4095u, 4100u, 65000u}) EXPECT_FALSE(abi::ring_doorbell(target, slot));
    std::vector<uint32_t> order;
    uint32_t from = 700 / 64;
    EXPECT_EQ(collect_doorbells(*page, from, 1000, [&](uint32_t slot) { order.push_back(slot); }), 5u);
    EXPECT_EQ(order, (std::vector<uint32_t>{700, 4095, 4100, 65000, 1}));
    EXPECT_FALSE(doorbell_pending(*page));
}

// Tests of the handshake between a client that posts and an engine that stops polling the queue.
TEST(Idle, PostToAnIdleQueueRings) {
    SqPair sq(8, 64);
    sq.client.head = 1;
    EXPECT_TRUE(sq.client.publish());
    sq.client.head = 2;
    EXPECT_FALSE(sq.client.publish()) << "now it is watched";
}

TEST(Idle, GoingIdleSeesWorkPostedBefore) {
    SqPair sq(8, 64);
    sq.client.head = 1;
    EXPECT_TRUE(sq.client.publish());
    EXPECT_FALSE(go_idle(sq.view, 0));
    EXPECT_EQ(sq.view.shared->idle, 0u) << "still watched, so no doorbell is needed";
    EXPECT_TRUE(go_idle(sq.view, 1));
    sq.client.head = 2;
    EXPECT_TRUE(sq.client.publish());
}

}  // namespace
}  // namespace roci::rings
