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

// The idle handshake in every order that matters.
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
