/// Many registrations share few files. These tests check which ranges of memory use the same file, and the descriptors of
/// the files.

#include <dirent.h>
#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "helper.hpp"

using namespace roci::memory;

namespace {

size_t open_descriptors() {
    size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder)) count++;
    ::closedir(folder);
    return count;
}

size_t vmas() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count++;
    return count;
}

}  // namespace

TEST(Files, OverlappingAndRepeatedRegistrationsShareOnePage) {
    char* p = map_anonymous(32 * kPage);
    fill(p, 32 * kPage);
    Registration a(p + 1000, 6 * kPage), b(p + 3 * kPage, 20 * kPage), c(p + 1000, 6 * kPage), d(p + 2 * kPage + 5, 9);
    for (Registration* r : {&a, &b, &c, &d}) {
        ASSERT_EQ(r->error, 0);
        EXPECT_TRUE(r->covers());
        ASSERT_TRUE(r->all_shared());
        EXPECT_TRUE(r->mirrors());
    }
    EXPECT_EQ(a.pieces[0].id, c.pieces[0].id);
    EXPECT_EQ(a.pieces[0].fd_offset, c.pieces[0].fd_offset);
    *b.at(0) = 'x';
    EXPECT_EQ(*a.at(3 * kPage - 1000), 'x');
    EXPECT_EQ(b.pieces.size(), 1u) << "neighbours in memory are neighbours in the file";
    EXPECT_NE(a.token, c.token);
    a.end();
    EXPECT_TRUE(c.mirrors());
    ::munmap(p, 32 * kPage);
}

TEST(Files, ManyHeapBuffersTakeFewDescriptors) {
    const size_t count = 10'000, size = 4096;
    const size_t descriptors = open_descriptors(), mappings = vmas();
    std::vector<char*> buffers;
    for (size_t i = 0; i < count; i++) buffers.push_back(static_cast<char*>(std::malloc(size)));
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    std::vector<uint64_t> tokens(count);
    std::vector<std::vector<Piece>> pieces(count);
    for (const size_t i : order) {
        fill(buffers[i], size, static_cast<unsigned>(i));
        ASSERT_EQ(acquire(buffers[i], size, true, pieces[i], tokens[i]), 0);
        ASSERT_GE(pieces[i][0].fd, 0);
    }
    EXPECT_LE(open_descriptors(), descriptors + 8);
    EXPECT_LE(vmas(), mappings + 2500);
    for (size_t i = 0; i < count; i++) {
        ASSERT_TRUE(filled(buffers[i], size, static_cast<unsigned>(i)));
        char first = 0;
        ASSERT_EQ(::pread(pieces[i][0].fd, &first, 1, static_cast<off_t>(pieces[i][0].fd_offset)), 1);
        ASSERT_EQ(first, buffers[i][0]);
    }
    for (const uint64_t token : tokens) release(token);
    for (char* buffer : buffers) std::free(buffer);
}

TEST(Files, ScatteredPagesTakeFewDescriptors) {
    const size_t count = 4'000, stride = 128 << 10;
    const size_t descriptors = open_descriptors();
    char* p = map_anonymous(count * stride);
    std::vector<uint64_t> tokens(count);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < count; i++) {
        ASSERT_EQ(acquire(p + i * stride, kPage, true, pieces, tokens[i]), 0);
        ASSERT_GE(pieces[0].fd, 0);
    }
    EXPECT_LE(open_descriptors(), descriptors + 8);
    for (const uint64_t token : tokens) release(token);
    ::munmap(p, count * stride);
}

/// Maps `bytes` at an address that is a multiple of 1 GiB. A file ends, and another piece begins, at each multiple of the
/// length of a pool file. The range contains no such address after its start.
static char* map_aligned(size_t bytes) {
    constexpr size_t kAligned = size_t{1} << 30;
    void* room = ::mmap(nullptr, 2 * kAligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const uint64_t start = (number(room) + kAligned - 1) / kAligned * kAligned;
    return static_cast<char*>(
        ::mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

/// Registers buffers of 65 pages in the order from the first to the last or in the opposite order. Returns true if the whole
/// range then is one piece.
static bool neighbours_share_a_piece(bool ascending) {
    constexpr size_t kBuffers = 40, kBytes = 65 * kPage;
    char* p = map_aligned(kBuffers * kBytes);
    fill(p, kBuffers * kBytes);
    std::vector<Piece> pieces;
    uint64_t token = 0;
    for (size_t i = 0; i < kBuffers; i++) {
        const size_t place = ascending ? i : kBuffers - 1 - i;
        if (acquire(p + place * kBytes, kBytes, true, pieces, token) != 0) return false;
    }
    Registration all(p, kBuffers * kBytes);
    EXPECT_EQ(all.pieces.size(), 1u);
    return all.error == 0 && all.all_shared() && all.mirrors() && filled(p, kBuffers * kBytes);
}

// The kernel and malloc() place large buffers from high to low addresses.
TEST(Files, NeighboursAreOnePieceInEitherOrder) {
    EXPECT_TRUE(in_child_process([] { return neighbours_share_a_piece(true); }));
    EXPECT_TRUE(in_child_process([] { return neighbours_share_a_piece(false); }));
}

TEST(Files, DescriptorsClosedByTheProgramAreNotHandedOut) {
    EXPECT_TRUE(in_child_process([] {
        char* p = map_anonymous(8 * kPage);
        fill(p, 8 * kPage);
        {
            Registration r(p, 4 * kPage);
            if (!r.all_shared()) return false;
            // A daemon may close all its descriptors and then open other files.
            ::dup2(::open("/dev/null", O_RDWR), r.pieces[0].fd);
        }
        Registration again(p, 8 * kPage);
        return again.all_shared() && again.covers() && again.mirrors() && filled(p, 8 * kPage);
    }));
}

TEST(Files, DescriptorsThatTookOurNumbersAreLeftAlone) {
    EXPECT_TRUE(in_child_process([] {
        char* p = map_anonymous(8 * kPage);
        fill(p, 8 * kPage);
        if (!Registration(p, 2 * kPage).all_shared()) return false;
        for (int fd = 3; fd < 64; fd++) ::close(fd);
        const auto open_file = [] { return ::open("/dev/null", O_RDWR); };
        const auto open_event = [] { return ::eventfd(0, 0); };
        std::vector<int> mine;
        for (int i = 0; i < 40; i++) mine.push_back(i % 2 == 0 ? open_file() : open_event());
        {
            Registration again(p, 8 * kPage);
            if (!again.all_shared() || !again.covers() || !again.mirrors() || !filled(p, 8 * kPage)) return false;
        }
        struct stat st {};
        const auto is_open = [&](int fd) { return ::fstat(fd, &st) == 0; };
        for (size_t i = 0; i < mine.size(); i++)
            if (!is_open(mine[i]) || S_ISCHR(st.st_mode) != (i % 2 == 0)) return false;
        return true;
    }));
}
