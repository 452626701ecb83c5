/// The program unmaps, replaces, moves, grows and frees registered memory. A later registration must not return
/// memory that has been replaced. The library must not keep memory that is no longer mapped.

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "advice.hpp"
#include "files.hpp"
#include "helper.hpp"
#include "maps.hpp"

using namespace roci::memory;

namespace {

char* map_at(char* address, size_t bytes) {
    return static_cast<char*>(::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

/// Returns the number of bytes that the files of registered memory use. The kernel keeps a file as long as this
/// process has a descriptor or a mapping of the file. Without a descriptor st_blocks cannot be read. So the function
/// counts the lengths of the mappings of such a file.
uint64_t adopted_memory() {
    std::map<uint64_t, uint64_t> files;  // bytes by inode
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code closed;  // read_symlink fails for the descriptor of the iterator
        struct stat st {};
        const auto target = std::filesystem::read_symlink(entry.path(), closed);
        if (!closed && target == kMapsName && ::stat(entry.path().c_str(), &st) == 0)
            files[st.st_ino] = uint64_t(st.st_blocks) * 512;
    }
    const std::map<uint64_t, uint64_t> open = files;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long start = 0, end = 0, inode = 0;
        if (!line.ends_with(kMapsName)) continue;
        if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) != 3) ADD_FAILURE() << line;
        if (!open.contains(inode)) files[inode] += end - start;
    }
    uint64_t sum = 0;
    for (const auto& [inode, bytes] : files) sum += bytes;
    return sum;
}

/// Returns the number of bytes of the range whose pages are in memory.
uint64_t resident(char* p, size_t bytes) {
    std::vector<unsigned char> pages(bytes / kPage);
    EXPECT_EQ(::mincore(p, bytes, pages.data()), 0);
    return uint64_t(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; })) * kPage;
}

}  // namespace

class Mappings : public testing::TestWithParam<bool> {
protected:
    void SetUp() override { forbid_procmap_query(GetParam()); }
    void TearDown() override { forbid_procmap_query(false); }
};
INSTANTIATE_TEST_SUITE_P(ByQueryAndByText, Mappings, testing::Bool());

TEST_P(Mappings, NewMemoryAtAnOldAddress) {
    const size_t bytes = 40 * kPage;
    char* p = map_anonymous(bytes);
    for (unsigned round = 0; round < 50; round++) {
        fill(p, bytes, round);
        Registration old(p, bytes);
        ASSERT_TRUE(old.all_shared());
        ::munmap(p, bytes);
        ASSERT_EQ(map_at(p, bytes), p);
        EXPECT_EQ(p[5], 0);
        fill(p, bytes, round + 100);
        Registration fresh(p, bytes);
        ASSERT_TRUE(fresh.all_shared());
        EXPECT_TRUE(fresh.mirrors());
        EXPECT_TRUE(filled(p, bytes, round + 100));
        const auto kept = old.read_back();
        EXPECT_TRUE(filled(kept.data(), bytes, round)) << "a registration keeps its pages, as pinned ones would be";
    }
    ::munmap(p, bytes);
}

TEST_P(Mappings, HolesPunchedByTheProgram) {
    const size_t pages = 64;
    char* p = map_anonymous(pages * kPage);
    fill(p, pages * kPage);
    {
        Registration r(p, pages * kPage);
        ASSERT_TRUE(r.all_shared());
    }
    ASSERT_EQ(map_at(p + 10 * kPage, 3 * kPage), p + 10 * kPage);
    fill(p + 10 * kPage, 3 * kPage, 77);
    Registration r(p, pages * kPage);
    ASSERT_TRUE(r.all_shared());
    // The range has one piece or three pieces, because the new pages may get the file offsets of the old pages.
    EXPECT_TRUE(r.covers() && r.mirrors());
    EXPECT_TRUE(filled(p + 10 * kPage, 3 * kPage, 77));
    const auto seen = r.read_back();
    EXPECT_EQ(std::memcmp(seen.data(), p, pages * kPage), 0);
    ::munmap(p, pages * kPage);
    EXPECT_EQ(Registration(p, kPage).error, EFAULT);
}

/// An allocator assumes that its memory is private. After MADV_DONTNEED such memory must be zero, even if it is
/// registered.
TEST_P(Mappings, DontneedGivesZerosAndKeepsTheRegistration) {
    const size_t pages = 40;
    char* p = map_anonymous(pages * kPage);
    fill(p, pages * kPage);
    Registration r(p + 4 * kPage, 20 * kPage);  // the test registers 20 of the 40 pages; the other pages stay private
    ASSERT_TRUE(r.all_shared());
    ASSERT_EQ(advise(p + 2 * kPage, 10 * kPage, MADV_DONTNEED), 0);
    for (size_t i = 2 * kPage; i < 12 * kPage; ++i) ASSERT_EQ(p[i], 0) << i;
    EXPECT_TRUE(filled(p, 2 * kPage));
    EXPECT_EQ(*r.at(kPage), 0) << "rocid sees the same zeros";
    EXPECT_TRUE(r.mirrors());
    const auto seen = r.read_back();
    EXPECT_EQ(std::memcmp(seen.data() + 8 * kPage, p + 12 * kPage, 12 * kPage), 0) << "behind it nothing has changed";
    EXPECT_EQ(advise(p + 1, kPage, MADV_DONTNEED), -1);
    EXPECT_EQ(errno, EINVAL);
    ::munmap(p, pages * kPage);
}

TEST_P(Mappings, MovedByMremap) {
    const size_t bytes = 8 * kPage;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    {
        Registration r(p, bytes);
        ASSERT_TRUE(r.all_shared());
    }
    char* reserved = map_anonymous(bytes);
    char* q = static_cast<char*>(::mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, reserved));
    ASSERT_EQ(q, reserved);
    ASSERT_EQ(map_at(p, bytes), p);
    fill(p, bytes, 50);
    Registration here(p, bytes), there(q, bytes);
    ASSERT_TRUE(here.all_shared() && there.all_shared());
    EXPECT_TRUE(filled(p, bytes, 50) && filled(q, bytes));
    std::memset(p, 1, bytes);
    EXPECT_TRUE(filled(q, bytes));
    EXPECT_TRUE(here.mirrors() && there.mirrors());
    ::munmap(p, bytes);
    ::munmap(q, bytes);
}

/// realloc() grows large blocks by mremap(). The mapping of a registered block must not grow into the next pages of
/// its file.
TEST_P(Mappings, ReallocOfRegisteredMemory) {
    std::mt19937 random(5);
    for (int round = 0; round < 40; round++) {
        struct Block {
            char* p;
            size_t size;
        };
        std::vector<Block> blocks;
        for (int i = 0; i < 6; i++) {
            Block b{nullptr, 140'000 + random() % 900'000};
            b.p = static_cast<char*>(std::malloc(b.size));
            fill(b.p, b.size, static_cast<unsigned>(i));
            if (round % 2) {
                Registration r(b.p, b.size);
                ASSERT_TRUE(r.all_shared());
            } else {  // registers the block page by page
                for (size_t at = 0; at < b.size; at += 4096) {
                    Registration r(b.p + at, std::min<size_t>(4096, b.size - at));
                    ASSERT_TRUE(r.all_shared());
                }
            }
            blocks.push_back(b);
        }
        for (size_t i = 0; i < blocks.size(); i++) {
            Block& b = blocks[i];
            const size_t shrunk = b.size / 2, grown = b.size * 3;
            b.p = static_cast<char*>(std::realloc(b.p, shrunk));
            ASSERT_TRUE(filled(b.p, shrunk, static_cast<unsigned>(i)));
            b.p = static_cast<char*>(std::realloc(b.p, grown));
            ASSERT_TRUE(filled(b.p, shrunk, static_cast<unsigned>(i)));
            fill(b.p, grown, static_cast<unsigned>(i));
            b.size = grown;
        }
        for (size_t i = 0; i < blocks.size(); i++) {
            Registration r(blocks[i].p, blocks[i].size);
            ASSERT_TRUE(r.all_shared());
            ASSERT_TRUE(filled(blocks[i].p, blocks[i].size, static_cast<unsigned>(i))) << round;
            std::free(blocks[i].p);
        }
    }
}

TEST_P(Mappings, FreedByMallocAndComeBack) {
    for (unsigned round = 0; round < 200; round++) {
        const size_t size = 500'000;  // malloc() maps such a block, and free() unmaps the block inside the C library
        char* p = static_cast<char*>(std::malloc(size));
        fill(p, size, round);
        Registration r(p, size);
        ASSERT_TRUE(r.all_shared());
        EXPECT_TRUE(r.mirrors());
        const auto seen = r.read_back();
        EXPECT_TRUE(filled(seen.data(), size, round));
        std::free(p);
    }
    EXPECT_LE(usage().files, 8u);
}

TEST_P(Mappings, BrkHeapShrinksAndGrows) {
    char* before = static_cast<char*>(::sbrk(0));
    ASSERT_NE(::sbrk(64 * kPage), reinterpret_cast<void*>(-1));
    auto* p = reinterpret_cast<char*>((number(before) + kPage - 1) & ~(kPage - 1));
    fill(p, 32 * kPage);
    {
        Registration r(p, 32 * kPage);
        ASSERT_TRUE(r.all_shared());
        ASSERT_EQ(::brk(before), 0);
    }
    ASSERT_EQ(::brk(before + 64 * kPage), 0);
    EXPECT_EQ(p[3 * kPage], 0) << "fresh memory";
    fill(p, 32 * kPage, 3);
    Registration r(p, 32 * kPage);
    EXPECT_TRUE(r.all_shared() && r.mirrors());
    ASSERT_EQ(::brk(before), 0);
}

TEST_P(Mappings, DeadMemoryIsGivenBack) {
    const uint64_t before = adopted_memory();
    for (int i = 0; i < 40; i++) {
        const size_t bytes = 48 << 20;
        char* p = map_anonymous(bytes);
        std::memset(p, 'd', bytes);
        Registration r(p, bytes);
        ASSERT_TRUE(r.all_shared());
        ::munmap(p, bytes);
    }
    for (int i = 0; i < 2000; i++) {
        const size_t bytes = 1 << 20;
        char* p = map_anonymous(bytes);
        p[0] = p[bytes / 2] = p[bytes - 1] = 'd';
        std::memset(p, 'd', 200'000);
        Registration r(p, bytes);
        ASSERT_TRUE(r.all_shared());
        ::munmap(p, bytes);
    }
    EXPECT_LE(usage().files, 16u);
    EXPECT_LE(usage().adopted_bytes, 2 * kIdleBytes);
    EXPECT_LE(adopted_memory(), before + 2 * kIdleBytes);
}

TEST_P(Mappings, GivenUpMemoryIsAdoptedAgain) {
    for (const char* way : {"uffd", "mprotect"}) {
        EXPECT_TRUE(in_child_process([&] {
            ::setenv("ROCI_ADOPT", way, 1);
            const size_t bytes = kIdleBytes + (20 << 20);
            char* p = map_anonymous(bytes);
            for (size_t i = 0; i < bytes; i += 3 * kPage) p[i] = static_cast<char>(i >> 13 | 1);
            {
                Registration r(p, bytes);
                if (!r.all_shared()) return false;
            }
            if (usage().files != 0) return false;
            p[1] = 99;
            Registration r(p, bytes);
            if (!r.all_shared() || !r.mirrors() || p[1] != 99) return false;
            for (size_t i = 0; i < bytes; i += 3 * kPage) {
                if (p[i] != static_cast<char>(i >> 13 | 1) || *r.at(i) != p[i]) return false;
            }
            return true;
        }));
    }
}

/// If the released memory exceeds kIdleBytes, munmap() of this memory must return the memory to the kernel at once.
TEST_P(Mappings, FreeingAfterReleaseGivesBackMemory) {
    const size_t bytes = kIdleBytes * 2;
    char* p = map_anonymous(bytes);
    std::memset(p, 'x', bytes);
    const uint64_t before = adopted_memory();
    {
        Registration r(p, bytes);
        ASSERT_TRUE(r.all_shared());
    }
    // During the test the library may free unused files of earlier tests, at most kIdleBytes.
    EXPECT_GE(adopted_memory(), bytes);
    EXPECT_EQ(resident(p, bytes), bytes) << "the program keeps its pages";
    ::munmap(p, bytes);
    EXPECT_LE(adopted_memory(), before);
}
