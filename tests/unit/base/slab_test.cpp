#include "base/slab.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace roci {
namespace {

/// A source of chunks that counts the bytes of the allocated chunks.
class CountedChunks final : public ChunkSource {
public:
    size_t unit() const override { return 4096; }
    void* take(size_t bytes) override {
        if (empty) return nullptr;
        out += bytes;
        return std::aligned_alloc(64, bytes);
    }
    void give_back(void* chunk, size_t bytes) noexcept override {
        out -= bytes;
        std::free(chunk);
    }
    size_t out = 0;
    bool empty = false;
};

TEST(Slab, BlocksAreWholeLinesAndDoNotOverlap) {
    CountedChunks source;
    Slab slab(source, 100);
    std::set<uintptr_t> seen;
    for (int i = 0; i < 1000; ++i) {
        void* block = slab.take();
        ASSERT_NE(block, nullptr);
        std::memset(block, i, 100);
        const auto at = reinterpret_cast<uintptr_t>(block);
        EXPECT_EQ(at % Slab::kLine, 0u);
        const auto next = seen.lower_bound(at);
        EXPECT_TRUE(next == seen.end() || *next - at >= 128);
        EXPECT_TRUE(next == seen.begin() || at - *std::prev(next) >= 128);
        seen.insert(at);
    }
    EXPECT_EQ(slab.taken_bytes(), 128'000u);
    for (const uintptr_t at : seen) slab.give_back(reinterpret_cast<void*>(at));
    EXPECT_EQ(slab.taken(), 0u);
}

TEST(Slab, GivesBackItsChunks) {
    CountedChunks source;
    {
        Slab slab(source, 64);
        for (int i = 0; i < 1000; ++i) slab.give_back(slab.take());
        EXPECT_LE(source.out, 4096u) << "one block at a time needs one chunk";
        ASSERT_TRUE(slab.reserve(1000));
    }
    EXPECT_EQ(source.out, 0u);
}

TEST(Slab, WhatWasGivenBackLastComesFirst) {
    if (Slab::kHeapBlocks) GTEST_SKIP() << "the address sanitizer keeps what was given back";
    CountedChunks source;
    Slab slab(source, 64);
    void* a = slab.take();
    void* b = slab.take();
    slab.give_back(a);
    slab.give_back(b);
    EXPECT_EQ(slab.take(), b);
    EXPECT_EQ(slab.take(), a);
    slab.give_back(a);
    slab.give_back(b);
}

TEST(Slab, WhatIsReservedIsThere) {
    CountedChunks source;
    Slab slab(source, 192);
    ASSERT_TRUE(slab.reserve(10));
    ASSERT_TRUE(slab.reserve(500));
    source.empty = true;
    std::vector<void*> blocks;
    for (int i = 0; i < 510; ++i) {
        blocks.push_back(slab.take());
        ASSERT_NE(blocks.back(), nullptr);
    }
    if (!Slab::kHeapBlocks) {
        EXPECT_FALSE(slab.reserve(1000));
        slab.unreserve(510);
        EXPECT_TRUE(slab.reserve(510)) << "a refusal reserves nothing";
    }
    for (void* block : blocks) slab.give_back(block);
    slab.unreserve(510);
    EXPECT_EQ(source.out, 0u) << "nobody needs any";
}

}  // namespace
}  // namespace roci
