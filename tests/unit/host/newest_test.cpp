// Tests of Newest: which elements it keeps, their order, and how many elements exist at the same time.
#include "host/newest.hpp"

#include <gtest/gtest.h>

#include <random>

namespace roci::host {
namespace {

constexpr size_t kFew = 64;
constexpr uint32_t kMany = 65'536;

/// Counts the existing objects (`alive`) and the largest number that existed at the same time (`most`).
struct Counted {
    static inline size_t alive = 0, most = 0;
    uint32_t number = 0;
    explicit Counted(uint32_t n) : number(n) { most = std::max(most, ++alive); }
    Counted(const Counted& o) : Counted(o.number) {}
    Counted& operator=(const Counted&) = default;
    ~Counted() { --alive; }
};

TEST(NewestTest, HoldsFewHoweverManyThereAre) {
    std::vector<uint32_t> times(kMany);
    for (uint32_t i = 0; i < kMany; ++i) times[i] = i;
    std::ranges::shuffle(times, std::mt19937(1));
    Newest<Counted> newest(kFew);
    for (const uint32_t t : times) newest.offer(t, Counted(t));
    EXPECT_EQ(newest.held(), kFew);
    EXPECT_EQ(newest.left_out(), kMany - kFew);
    EXPECT_LE(Counted::most, kFew + 8) << "those of the heap, and temporaries of the algorithms";
    const auto all = newest.take();
    ASSERT_EQ(all.size(), kFew);
    for (uint32_t i = 0; i < kFew; ++i) EXPECT_EQ(all[i].number, kMany - kFew + i);
}

TEST(NewestTest, OfTheSameTimeTheLastIsTheNewest) {
    Newest<int> newest(2);
    for (const int i : {1, 2, 3}) newest.offer(7, i);
    EXPECT_EQ(newest.take(), (std::vector<int>{2, 3}));
}

TEST(NewestTest, FewerThanTheMostAreAllThere) {
    Newest<int> newest(3);
    newest.offer(5, 1);
    newest.offer(4, 2);
    EXPECT_EQ(newest.left_out(), 0u);
    EXPECT_EQ(newest.take(), (std::vector<int>{2, 1}));
    EXPECT_TRUE(Newest<int>(3).take().empty());
}

}  // namespace
}  // namespace roci::host
