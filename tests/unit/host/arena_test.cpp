// Tests of the arena and its blocks, of the number pool, and of the token bucket.
#include "host/arena.hpp"

#include <random>
#include <set>

#include "fixture.hpp"
#include "host/numbers.hpp"
#include "host/token_bucket.hpp"

namespace roci::host::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct ArenaTest : ::testing::Test {
    MemoryPlatform platform;
    /// Allocates a block. If the arena needs another chunk, adds the chunk as a client does and allocates again.
    Outcome allocate(Arena& a, uint64_t length, ArenaBlock& b) {
        Outcome o = a.allocate(length, b);
        if (o.wanted_chunk == 0) return o;
        std::string why;
        EXPECT_FALSE(a.check_chunk(o.wanted_chunk).failed());
        a.add_chunk(platform.make_memory(o.wanted_chunk, why));
        return a.allocate(length, b);
    }
    ArenaBlock take(Arena& a, uint64_t length) {
        ArenaBlock b;
        const Outcome o = allocate(a, length, b);
        EXPECT_FALSE(o.failed()) << o.reason;
        return b;
    }
};

TEST_F(ArenaTest, BlocksAreZeroedAlignedAndApart) {
    Arena arena(platform, 64 * kMiB);
    std::mt19937 random(7);
    std::vector<ArenaBlock> live;
    for (int i = 0; i < 20'000; ++i) {
        if (live.empty() || random() % 2 == 0) {
            const uint64_t length = 1 + random() % (random() % 16 == 0 ? 200'000 : 2000);
            ArenaBlock b;
            if (allocate(arena, length, b).failed()) continue;
            ASSERT_EQ(b.where().offset % 64, 0u);
            ASSERT_GE(b.where().length, length);
            for (uint64_t k = 0; k < b.where().length; ++k)
                ASSERT_EQ(b.base()[k], std::byte{0}) << "overlap, or left from its last user";
            std::memset(b.base(), 0xee, b.where().length);
            live.push_back(std::move(b));
        } else {
            const size_t which = random() % live.size();
            std::memset(live[which].base(), 0, 64);  // no store may go beyond the block
            std::memset(live[which].base(), 0x77, live[which].where().length);
            std::swap(live[which], live.back());
            live.pop_back();
        }
    }
    live.clear();
    // All free blocks must be merged, so that a block as large as the largest chunk can be allocated.
    const size_t chunks = arena.chunks();
    const uint64_t bytes = arena.bytes();
    uint64_t largest = 0;
    for (const auto& [base, length] : platform.memory) largest = std::max(largest, length);
    const ArenaBlock whole = take(arena, largest);
    EXPECT_EQ(whole.where().length, largest);
    EXPECT_EQ(arena.chunks(), chunks);
    EXPECT_EQ(arena.bytes(), bytes);
}

TEST_F(ArenaTest, ChunksGrowByDoubling) {
    Arena arena(platform, 1024 * kMiB);
    std::vector<ArenaBlock> live;
    live.push_back(take(arena, 64));
    EXPECT_EQ(arena.bytes(), Arena::kFirstChunk);
    live.push_back(take(arena, Arena::kFirstChunk));
    EXPECT_EQ(arena.bytes(), 3 * Arena::kFirstChunk);
    live.push_back(take(arena, 100 * kMiB));
    EXPECT_EQ(arena.bytes(), 3 * Arena::kFirstChunk + 100 * kMiB) << "one block larger than a step gets its own chunk";
}

TEST_F(ArenaTest, TheLimitIsExact) {
    Arena arena(platform, kMiB);
    ArenaBlock a = take(arena, kMiB), b;
    EXPECT_EQ(arena.allocate(1, b).error, ENOMEM);
    a.reset();
    EXPECT_FALSE(arena.allocate(kMiB, b).failed());
    EXPECT_EQ(arena.allocate(~uint64_t{0}, a).error, ENOMEM);
    EXPECT_EQ(arena.allocate(kMiB + 1, a).error, ENOMEM);
}

TEST(NumberPool, RandomNumbersShareCacheLinesAndRunOut) {
    NumberPool pool(3, 2000);
    std::mt19937_64 random(5);
    std::set<uint32_t> seen, blocks;
    uint32_t in_sequence = 0, last = 0;
    for (uint32_t i = 0; i < 160; ++i) {
        const auto n = pool.allocate(random());
        ASSERT_TRUE(n);
        ASSERT_TRUE(*n >= 3 && *n < 2000);
        EXPECT_TRUE(seen.insert(*n).second);
        blocks.insert(*n / 8);
        in_sequence += *n == last + 1;
        last = *n;
    }
    EXPECT_LE(blocks.size(), 22u) << "20 lines of 8 entries, and one that begins or ends early";
    EXPECT_LT(in_sequence, 60u);
    EXPECT_GT(*blocks.rbegin() - *blocks.begin(), 50u) << "... spread over the table";
    while (pool.in_use() < pool.capacity()) {
        const auto n = pool.allocate(random());
        ASSERT_TRUE(n && *n >= 3 && *n < 2000);
        EXPECT_TRUE(seen.insert(*n).second);
    }
    EXPECT_FALSE(pool.allocate(random()));
    pool.release(77);
    EXPECT_EQ(pool.allocate(random()), 77u);
    EXPECT_FALSE(NumberPool(5, 5).allocate(random()));
}

TEST(NumberPool, ARandomNumberRestsAfterItsRelease) {
    NumberPool pool(3, 20'000);
    std::mt19937_64 random(5);
    for (uint32_t i = 0; i < 20; ++i) {
        const auto freed = pool.allocate(random());
        ASSERT_TRUE(freed);
        pool.release(*freed);
        for (uint32_t k = 1; k < NumberPool::kMostResting; ++k) {
            const auto n = pool.allocate(random());
            ASSERT_TRUE(n);
            ASSERT_NE(*n, *freed) << "a peer may still have a connection to the freed number";
            pool.release(*n);
        }
    }
}

TEST(NumberPool, PairsOfAllocateAndReleaseGoThroughTheWholeRange) {
    NumberPool pool(1, 1 << 16);
    std::mt19937_64 random(6);
    std::set<uint32_t> seen;
    for (int i = 0; i < 4096; ++i) {
        const uint32_t n = *pool.allocate(random());
        seen.insert(n);
        pool.release(n);
    }
    EXPECT_GT(seen.size(), 3500u);
}

TEST(TokenBucket, RatesAreExactAndSavedUpForASecond) {
    constexpr Nanos kSecond = 1'000'000'000;
    TokenBucket bucket;
    Nanos now = 5 * kSecond;
    const auto take = [&](uint64_t n) {
        for (; n > 0; --n) bucket.take(1000, now);
    };
    take(1000);
    EXPECT_LE(bucket.settled(), now) << "a burst at first";
    EXPECT_EQ(bucket.used(1000, now), 1000u);
    take(3);
    EXPECT_EQ(bucket.settled(), now + 3 * kSecond / 1000) << "one token takes a millisecond";
    EXPECT_EQ(bucket.used(1000, now), 1003u);
    now += kSecond / 2;
    take(497);
    EXPECT_LE(bucket.settled(), now);
    take(1);
    EXPECT_GT(bucket.settled(), now);
    now += 100 * kSecond;
    EXPECT_EQ(bucket.used(1000, now), 0u);
    take(1000);
    EXPECT_LE(bucket.settled(), now);
    take(1);
    EXPECT_EQ(bucket.settled(), now + kSecond / 1000) << "no more than a second's";
    TokenBucket odd;
    for (int i = 0; i < 301; ++i) odd.take(300, now);
    EXPECT_GT(odd.settled(), now) << "a time per token that is no whole number is rounded up";
}

TEST(NumberPool, GoesRoundAndRunsOut) {
    NumberPool pool(3, 200);
    EXPECT_EQ(pool.capacity(), 197u);
    for (uint32_t n = 3; n < 200; ++n) EXPECT_EQ(pool.allocate(), n);
    EXPECT_EQ(pool.allocate(), std::nullopt);
    pool.release(5);
    pool.release(150);
    EXPECT_EQ(pool.allocate(), 5u);
    EXPECT_EQ(pool.allocate(), 150u);
    for (uint32_t n = 3; n < 200; ++n) pool.release(n);
    EXPECT_EQ(pool.in_use(), 0u);
    EXPECT_EQ(pool.allocate(), 3u) << "the number that was freed first";
    NumberPool none(5, 5);
    EXPECT_EQ(none.allocate(), std::nullopt);
}

}  // namespace
}  // namespace roci::host::test
