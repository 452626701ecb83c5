// Tests of the neighbour cache: its content and the lifetimes of its entries.
#include <gtest/gtest.h>

#include <vector>

#include "neighbour/cache.hpp"

namespace roci::neighbour {
namespace {

constexpr Nanos kSecond = 1'000'000'000;
constexpr MacAddress kMac{{2, 0, 0, 0, 0, 7}}, kOther{{2, 0, 0, 0, 0, 8}};

Key key(uint32_t n) {
    const uint8_t a[4] = {10, uint8_t(n >> 16), uint8_t(n >> 8), uint8_t(n)};
    return {0, Gid::from_ipv4(a)};
}

std::vector<Question> questions(Cache& c) {
    std::vector<Question> all;
    for (Question q; c.next_question(q);) all.push_back(q);
    return all;
}
std::vector<Settled> settled(Cache& c) {
    std::vector<Settled> all;
    for (Settled s; c.next_settled(s);) all.push_back(s);
    return all;
}

TEST(NeighbourCache, AsksOnceAndThenKnows) {
    Cache c;
    EXPECT_EQ(c.find(key(1), 0).answer, Answer::pending);
    EXPECT_EQ(c.find(key(1), 1).answer, Answer::pending);
    ASSERT_EQ(questions(c).size(), 1u);
    c.heard(key(1), kMac, 5, false);
    const auto s = settled(c);
    ASSERT_EQ(s.size(), 1u);
    EXPECT_TRUE(s[0].known);
    const Lookup l = c.find(key(1), 6);
    EXPECT_EQ(l.answer, Answer::known);
    EXPECT_EQ(l.mac, kMac);
    EXPECT_TRUE(questions(c).empty());
    EXPECT_TRUE(settled(c).empty());
}

TEST(NeighbourCache, AsksThreeTimesThenSaysNo) {
    Cache c;
    (void)c.find(key(1), 0);
    for (Nanos t = kSecond; t <= 2 * kSecond; t += kSecond) {
        EXPECT_EQ(c.next_deadline(), t);
        c.advance(t);
    }
    EXPECT_EQ(questions(c).size(), 3u);
    EXPECT_TRUE(settled(c).empty());
    c.advance(3 * kSecond);
    const auto s = settled(c);
    ASSERT_EQ(s.size(), 1u);
    EXPECT_FALSE(s[0].known);
    EXPECT_EQ(c.find(key(1), 3 * kSecond + 1).answer, Answer::failed) << "not at once again";
    EXPECT_TRUE(questions(c).empty());
    EXPECT_EQ(c.find(key(1), 4 * kSecond + 1).answer, Answer::pending) << "but later";
    EXPECT_EQ(questions(c).size(), 1u);
}

TEST(NeighbourCache, WhatIsOldIsUsedWhileItIsAskedForAgain) {
    Cache c;
    (void)c.find(key(1), 0);
    c.heard(key(1), kMac, 0, false);
    (void)questions(c), (void)settled(c);
    EXPECT_EQ(c.find(key(1), 31 * kSecond).answer, Answer::known);
    const auto q = questions(c);
    ASSERT_EQ(q.size(), 1u);
    EXPECT_EQ(q[0].mac, kMac) << "the one who had it is asked first";
    for (Nanos t = 32; t <= 34; ++t) c.advance(t * kSecond);
    const auto more = questions(c);
    ASSERT_EQ(more.size(), 2u);
    EXPECT_TRUE(more[1].mac.is_zero()) << "then everybody";
    EXPECT_EQ(c.find(key(1), 34 * kSecond).answer, Answer::failed);
    EXPECT_TRUE(settled(c).empty()) << "nobody waited";
}

TEST(NeighbourCache, NobodyMakesEntriesUnasked) {
    Cache c;
    c.heard(key(1), kMac, 0, false);
    EXPECT_EQ(c.size(), 0u);
    c.heard(key(1), kMac, 0, true);
    EXPECT_EQ(c.find(key(1), 1).answer, Answer::known);
    c.heard(key(1), kOther, 2, false);
    EXPECT_EQ(c.find(key(1), 3).mac, kOther) << "it moved";
    c.heard(key(1), kMac, 4, false, false);
    EXPECT_EQ(c.find(key(1), 5).mac, kOther) << "without the override flag it has not";
}

TEST(NeighbourCache, IsBounded) {
    Cache c(Cache::Config{.entries = 8});
    for (uint32_t i = 0; i < 1000; ++i) c.heard(key(i), kMac, i, true);
    EXPECT_EQ(c.size(), 8u);
    EXPECT_EQ(c.find(key(999), 1001).answer, Answer::known);
    for (uint32_t i = 2000; i < 2008; ++i) EXPECT_EQ(c.find(key(i), 2000).answer, Answer::pending);
    EXPECT_EQ(c.size(), 8u);
    EXPECT_EQ(c.find(key(3000), 2001).answer, Answer::failed) << "all places are waited for";
}

TEST(NeighbourCache, SilentAddressesPushNoKnownOneOut) {
    Cache c(Cache::Config{.entries = 8});
    c.heard(key(1), kMac, 0, true);
    Nanos now = 1;
    for (uint32_t i = 100; i < 200; ++i, now += 4 * kSecond) {
        for (uint32_t k = 0; k < 7; ++k) (void)c.find(key(i * 10 + k), now);
        for (int t = 0; t < 3; ++t) c.advance(now + (t + 1) * kSecond);
    }
    EXPECT_EQ(c.recall(key(1)), kMac) << "used longest ago, but it answers";
}

TEST(NeighbourCache, AQuestionThatNobodyWaitsForLeavesItsPlace) {
    Cache c(Cache::Config{.entries = 8});
    for (uint32_t i = 0; i < 8; ++i) (void)c.find(key(i), 0);
    EXPECT_EQ(c.find(key(50), 1).answer, Answer::failed);
    c.abandon(key(3));
    EXPECT_EQ(c.find(key(50), 2).answer, Answer::pending);
    EXPECT_EQ(c.find(key(51), 3).answer, Answer::failed) << "the others are waited for still";
}

TEST(NeighbourCache, APortThatGoesTakesItsWaitersAlong) {
    Cache c;
    (void)c.find(key(1), 0);
    c.forget_port(0);
    ASSERT_EQ(settled(c).size(), 1u);
    EXPECT_EQ(c.size(), 0u);
}

}  // namespace
}  // namespace roci::neighbour
