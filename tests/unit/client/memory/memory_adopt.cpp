/// Registration turns private anonymous memory into memory that rocid shares. The program must notice no other
/// change.

#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <random>
#include <string>

#include "helper.hpp"
#include "move.hpp"
#include "page_view.hpp"

using namespace roci::memory;

namespace {

/// Returns the number of bytes in the page cache that belong to the file of a piece.
uint64_t allocated(const Piece& piece) {
    struct stat st {};
    ::fstat(piece.fd, &st);
    return static_cast<uint64_t>(st.st_blocks) * 512;
}

/// Returns the number of pages of the pieces for which the files contain data. Holes of the files are not counted.
uint64_t data_pages(const std::vector<Piece>& pieces) {
    uint64_t count = 0;
    for (const Piece& piece : pieces) {
        for (uint64_t at = piece.fd_offset; at < piece.fd_offset + piece.length; at += kPage)
            count += ::lseek(piece.fd, static_cast<off_t>(at), SEEK_DATA) == static_cast<off_t>(at);
    }
    return count;
}

}  // namespace

TEST(Adopt, ContentStaysAndIsSharedBothWays) {
    const size_t bytes = 5 * kPage;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    Registration r(p + 100, bytes - 300);
    ASSERT_EQ(r.error, 0);
    EXPECT_TRUE(r.covers());
    ASSERT_TRUE(r.all_shared());
    EXPECT_TRUE(filled(p, bytes));
    EXPECT_EQ(std::memcmp(r.at(0), p + 100, bytes - 300), 0);
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, bytes);
}

TEST(Adopt, LargeRangeOverManySteps) {
    const size_t bytes = 67 * (1 << 20) + 3 * kPage;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    Registration r(p + 1, bytes - 2);
    ASSERT_EQ(r.error, 0);
    EXPECT_TRUE(r.covers());
    ASSERT_TRUE(r.all_shared());
    EXPECT_EQ(r.pieces.size(), 1u);
    EXPECT_TRUE(filled(p, bytes));
    const auto seen = r.read_back();
    EXPECT_EQ(std::memcmp(seen.data(), p + 1, bytes - 2), 0);
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, bytes);
}

namespace {

constexpr size_t kHuge = 2 << 20;

/// Returns `bytes` of memory that begin at a huge page boundary. The memory is a part of a larger mapping.
char* map_huge(size_t bytes) {
    const uint64_t at = number(map_anonymous(bytes + kHuge));
    char* p = pointer<char>((at + kHuge - 1) / kHuge * kHuge);
    ::madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/// Returns the sum in KiB of one field of /proc/self/smaps over the mappings that begin in the range.
uint64_t in_smaps(const char* name, const char* from, size_t bytes) {
    std::ifstream smaps("/proc/self/smaps");
    uint64_t sum = 0;
    bool inside = false;
    for (std::string line; std::getline(smaps, line);) {
        unsigned long start = 0, end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2)
            inside = start >= number(from) && start < number(from) + bytes;
        if (inside && line.rfind(name, 0) == 0) sum += std::strtoul(line.c_str() + std::strlen(name) + 1, nullptr, 10);
    }
    return sum;
}

constexpr int kCollapse = 25;  ///< MADV_COLLAPSE

/// The numbers of this process's requests for a huge page that the kernel has granted (`made`) and denied.
struct Collapses {
    std::atomic<int> made{0}, denied{0};
} collapses;

}  // namespace

/// Replaces the C library's madvise(), also for calls from the library under test. Counts the requests for huge
/// pages.
extern "C" int madvise(void* address, size_t length, int advice) noexcept {
    const int result = static_cast<int>(::syscall(SYS_madvise, address, length, advice));
    if (advice == kCollapse) ++(result == 0 ? collapses.made : collapses.denied);
    return result;
}

namespace {

/// The start of struct pm_scan_arg of <linux/fs.h>.
struct Scan {
    uint64_t size, flags, start, end, walk_end;
};
std::atomic<uint64_t> bytes_walked{0};

}  // namespace

/// Replaces the C library's ioctl(), also for calls from the library under test. Sums the bytes that PAGEMAP_SCAN has walked.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list list;
    va_start(list, request);
    void* argument = va_arg(list, void*);
    va_end(list);
    const int result = static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
    if (_IOC_TYPE(request) == 'f' && _IOC_NR(request) == 16 && result >= 0) {
        const auto* scan = static_cast<const Scan*>(argument);
        bytes_walked += scan->walk_end - scan->start;
    }
    return result;
}

namespace {

/// Returns true if this kernel turns pages of a memfd into a huge page on request (MADV_COLLAPSE, Linux 6.1).
bool can_collapse() {
    const int fd = ::memfd_create("probe", MFD_CLOEXEC);
    char* at = map_huge(kHuge);
    const bool mapped =
        ::ftruncate(fd, kHuge) == 0 && ::mmap(at, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at;
    if (mapped) at[0] = 1;
    const bool done = mapped && ::madvise(at, kHuge, kCollapse) == 0;
    ::munmap(at, kHuge);
    ::close(fd);
    return done;
}

/// Counts the steps of a move, and the steps whose pages no thread has touched before the call of freeze(). On
/// request, freeze() then writes to a page, like a thread that writes shortly before the freeze.
class WatchingFreezer final : public Freezer {
public:
    explicit WatchingFreezer(char* written = nullptr) : written_(written) {}
    bool cover(uint64_t, uint64_t, bool) override { return true; }
    bool holds_untouched() const override { return true; }
    bool freeze(uint64_t address, uint64_t length, int) override {
        const PageView view(true);
        untouched += view.look(address, length) == PageView::State::untouched;
        steps++;
        if (written_ && number(written_) >= address && number(written_) < address + length) *written_ = 'w';
        return true;
    }
    void thaw(uint64_t, uint64_t, int, bool) override {}
    int steps = 0, untouched = 0;

private:
    char* written_;
};

/// Counts the steps of a move that uses userfaultfd, and the ranges that are moved as a whole. On request, keep_out()
/// first writes to a page, like a thread that writes shortly before the call.
class CountingFreezer final : public Freezer {
public:
    explicit CountingFreezer(std::unique_ptr<Freezer> real) : real_(std::move(real)) {}
    bool cover(uint64_t address, uint64_t length, bool shared) override { return real_->cover(address, length, shared); }
    bool holds_untouched() const override { return real_->holds_untouched(); }
    bool freeze(uint64_t address, uint64_t length, int protection) override {
        steps++;
        return real_->freeze(address, length, protection);
    }
    void thaw(uint64_t address, uint64_t length, int protection, bool replaced) override {
        real_->thaw(address, length, protection, replaced);
    }
    bool keep_out(uint64_t address, uint64_t length) override {
        if (write_first) *std::exchange(write_first, nullptr) = 'w';
        wholes++;
        return real_->keep_out(address, length);
    }
    void let_in(uint64_t address, uint64_t length) override {
        wholes--;
        real_->let_in(address, length);
    }
    int steps = 0, wholes = 0;
    char* write_first = nullptr;

private:
    std::unique_ptr<Freezer> real_;
};

}  // namespace

TEST(Adopt, LongUntouchedRangesMoveAsAWhole) {
    const size_t bytes = size_t{64} << 30;
    auto* p =
        static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(p, MAP_FAILED);
    KeptFd kept;
    auto uffd = make_uffd_freezer(kept);
    if (!uffd || PageView(true).untouched_bytes(number(p), bytes) != bytes)
        GTEST_SKIP() << "userfaultfd is refused, or this kernel has no PAGEMAP_SCAN";
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
    CountingFreezer freezer(std::move(uffd));
    char* const middle = p + bytes / 2;
    *middle = 'm';
    freezer.write_first = p + bytes / 4;
    EXPECT_EQ(move_pages({number(p), bytes, PROT_READ | PROT_WRITE, false, fd, 0}, freezer), bytes);
    EXPECT_LE(freezer.steps, 3) << "the two touched pages, and the first step, before which a page was touched";
    EXPECT_EQ(freezer.wholes, 3);
    EXPECT_EQ(p[bytes / 4], 'w') << "an update was lost";
    EXPECT_EQ(*middle, 'm');
    EXPECT_EQ(p[bytes - 1], 0);
    p[bytes - 1] = 'z';
    char seen = 0;
    for (const auto& [at, byte] : {std::pair{bytes / 4, 'w'}, {bytes / 2, 'm'}, {bytes - 1, 'z'}}) {
        ASSERT_EQ(::pread(fd, &seen, 1, static_cast<off_t>(at)), 1);
        EXPECT_EQ(seen, byte);
    }
    EXPECT_LE(allocated({fd, 0, 0, 0, true, 0, 0}), uint64_t{8} << 20);
    ::munmap(p, bytes);
    ::close(fd);
}

TEST(Adopt, ArenaHeadsAreNotLookedForInUntouchedPages) {
    const size_t bytes = size_t{1} << 30;
    auto* p =
        static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(p, MAP_FAILED);
    Registration r(p, bytes);
    ASSERT_TRUE(r.all_shared());
    EXPECT_EQ(allocated(r.pieces[0]), 0u);
    r.end();
    ::munmap(p, bytes);
}

// A walk takes the kernel a time in proportion to the walked bytes. If each step of a registration walked to the end of
// the range, the total time would be quadratic.
TEST(Adopt, TouchedPagesAreWalkedOnce) {
    const size_t bytes = 64 << 20;
    char* p = map_anonymous(bytes);
    fill(p, bytes);
    bytes_walked = 0;
    Registration r(p, bytes);
    ASSERT_TRUE(r.all_shared());
    EXPECT_LE(bytes_walked, bytes);
    EXPECT_TRUE(filled(p, bytes));
    r.end();
    ::munmap(p, bytes);
}

TEST(Adopt, HugePagesStayHuge) {
    if (!can_collapse()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE, or no huge page left";
    const size_t bytes = 32 << 20;
    char* p = map_huge(bytes);
    fill(p, bytes);
    if (in_smaps("AnonHugePages:", p, bytes) < bytes / 1024) GTEST_SKIP() << "the program itself got no huge pages";
    const int before = collapses.made, denied_before = collapses.denied;
    Registration r(p, bytes);
    ASSERT_TRUE(r.all_shared());
    EXPECT_TRUE(filled(p, bytes));
    EXPECT_TRUE(r.mirrors());
    // If the kernel denied a huge page, the test checks no counts. After a denial other than EAGAIN, the library requests no
    // further huge pages.
    const bool denied = collapses.denied != denied_before;
    if (!denied) {
        EXPECT_EQ(collapses.made - before, int(bytes / kHuge));
        EXPECT_EQ(in_smaps("ShmemPmdMapped:", p, bytes), bytes / 1024);
        EXPECT_EQ(::mremap(p, bytes, bytes + kHuge, MREMAP_MAYMOVE), MAP_FAILED)
            << "the mapping grew into other pages of its file";
    }
    r.end();
    ::munmap(p, bytes);
    if (denied) GTEST_SKIP() << "this machine has no further huge page left";
}

TEST(Adopt, OffsetsOfLargeFilesAreAlignedAsTheAddressesAre) {
    const size_t bytes = 32 << 20;
    char* p = map_huge(bytes);
    fill(p, bytes);
    Registration r(p + 3 * kPage, bytes - 3 * kPage);
    ASSERT_EQ(r.pieces.size(), 1u);
    EXPECT_EQ(r.pieces[0].fd_offset % kHuge, (number(p) + 3 * kPage) % kHuge);
    EXPECT_TRUE(filled(p, bytes));
    EXPECT_TRUE(r.mirrors());
    r.end();
    ::munmap(p, bytes);
}

TEST(Adopt, UntouchedPagesAreNotLookedInto) {
    const size_t bytes = 4 * kHuge;
    char* p = map_huge(bytes);
    p[kHuge] = 't';
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
    // The freezer writes to this page after move_pages() has read the state of the pages.
    WatchingFreezer freezer(p + 3 * kHuge + 5 * kPage);
    EXPECT_EQ(move_pages({number(p), bytes, PROT_READ | PROT_WRITE, false, fd, 0}, freezer), bytes);
    EXPECT_EQ(freezer.steps, 4);
    EXPECT_EQ(freezer.untouched, 3) << "pages were brought in before they were frozen";
    EXPECT_EQ(p[kHuge], 't');
    EXPECT_EQ(p[3 * kHuge + 5 * kPage], 'w') << "an update was lost";
    ::munmap(p, bytes);
    ::close(fd);
}

TEST(Adopt, FileIsSealedAgainstTruncation) {
    char* p = map_anonymous(kPage);
    Registration r(p, kPage);
    ASSERT_TRUE(r.all_shared());
    EXPECT_NE(::ftruncate(r.pieces[0].fd, 0), 0);
    EXPECT_NE(::ftruncate(r.pieces[0].fd, static_cast<off_t>(r.pieces[0].fd_length * 2)), 0);
    ::munmap(p, kPage);
}

TEST(Adopt, UntouchedPagesStayHoles) {
    const size_t bytes = 256 << 20;
    char* p = map_anonymous(bytes);
    p[bytes / 2] = 42;
    Registration r(p, bytes);
    ASSERT_TRUE(r.all_shared());
    EXPECT_LE(allocated(r.pieces[0]), 16 * kPage);
    EXPECT_EQ(*r.at(bytes / 2), 42);
    p[17] = 3;  // this page was a hole
    EXPECT_EQ(*r.at(17), 3);
    EXPECT_TRUE(r.mirrors());
    ::munmap(p, bytes);
}

TEST(Adopt, UntouchedRunsBetweenTouchedPagesStayHoles) {
    std::mt19937 random(3);
    for (int round = 0; round < 40; round++) {
        const size_t pages = 64 + random() % 1000;
        char* p = map_anonymous(pages * kPage);
        std::vector<char> expected(pages * kPage);
        uint64_t touched = 0;
        for (size_t at = random() % 40; at < pages; at += 1 + random() % 40) {
            for (size_t end = std::min(pages, at + 1 + random() % 20); at < end; at++, touched++)
                p[at * kPage + 5] = expected[at * kPage + 5] = static_cast<char>(1 + random() % 100);
        }
        Registration r(p, pages * kPage);
        ASSERT_TRUE(r.all_shared());
        EXPECT_EQ(data_pages(r.pieces), touched);  // before the reads below, which allocate pages
        EXPECT_EQ(r.read_back(), expected);
        EXPECT_EQ(std::memcmp(p, expected.data(), expected.size()), 0);
        EXPECT_TRUE(r.mirrors());
        ::munmap(p, pages * kPage);
    }
}

TEST(Adopt, ProtectionIsKept) {
    char* p = map_anonymous(3 * kPage);
    fill(p, 3 * kPage);
    ::mprotect(p + kPage, kPage, PROT_READ);
    Registration whole(p, 3 * kPage, true);
    EXPECT_EQ(whole.error, EFAULT) << "the kernel answers EFAULT for a read-only page";
    EXPECT_TRUE(whole.pieces.empty());
    Registration r(p, 3 * kPage, false);
    ASSERT_EQ(r.error, 0);
    ASSERT_TRUE(r.all_shared());
    EXPECT_TRUE(filled(p, 3 * kPage));
    EXPECT_EXIT({ *const_cast<volatile char*>(p + kPage) = 1; }, testing::KilledBySignal(SIGSEGV), "");
    ::munmap(p, 3 * kPage);
}

TEST(Adopt, MlockIsKept) {
    char* p = map_anonymous(4 * kPage);
    fill(p, 4 * kPage);
    ASSERT_EQ(::mlock(p, 4 * kPage), 0);
    Registration r(p, 4 * kPage);
    ASSERT_TRUE(r.all_shared());
    EXPECT_NE(::msync(p, 4 * kPage, MS_ASYNC | MS_INVALIDATE), 0) << "still locked";
    EXPECT_EQ(errno, EBUSY);
    ::munmap(p, 4 * kPage);
}

TEST(Adopt, ErrorsOfTheKernel) {
    std::vector<Piece> pieces;
    uint64_t token = 0;
    char* p = map_anonymous(4 * kPage);
    EXPECT_EQ(acquire(p, 0, true, pieces, token), EINVAL);
    EXPECT_EQ(acquire(p, SIZE_MAX, true, pieces, token), EINVAL);
    EXPECT_EQ(acquire(reinterpret_cast<void*>(SIZE_MAX - 10), 10, true, pieces, token), EINVAL);
    ::munmap(p + 2 * kPage, kPage);
    EXPECT_EQ(acquire(p, 4 * kPage, true, pieces, token), EFAULT);
    ::mprotect(p + kPage, kPage, PROT_NONE);
    EXPECT_EQ(acquire(p, 2 * kPage, false, pieces, token), EFAULT);
    EXPECT_EQ(acquire(nullptr, 10, false, pieces, token), EFAULT);
    EXPECT_TRUE(pieces.empty());
    EXPECT_EQ(usage().tokens, 0u);
    release(0);
    release(123456789);
    ::munmap(p, 4 * kPage);
}

TEST(Adopt, PythonLikeHeapUse) {
    std::mt19937 random(3);
    struct Object {
        char* p;
        size_t size;
        unsigned seed;
        uint64_t token;
    };
    std::vector<Object> objects;
    for (unsigned i = 0; i < 20'000; i++) {
        if (objects.size() > 300 || (!objects.empty() && random() % 3 == 0)) {
            const size_t k = random() % objects.size();
            const Object o = objects[k];
            ASSERT_TRUE(filled(o.p, o.size, o.seed));
            if (o.token) release(o.token);
            std::free(o.p);
            objects.erase(objects.begin() + static_cast<long>(k));
            continue;
        }
        Object o{nullptr, 1 + random() % (random() % 20 ? 3000 : 300'000), i, 0};
        o.p = static_cast<char*>(std::malloc(o.size));
        fill(o.p, o.size, o.seed);
        if (random() % 4 == 0) {
            std::vector<Piece> pieces;
            ASSERT_EQ(acquire(o.p, o.size, true, pieces, o.token), 0);
        }
        objects.push_back(o);
    }
    for (const Object& o : objects) {
        ASSERT_TRUE(filled(o.p, o.size, o.seed));
        if (o.token) release(o.token);
        std::free(o.p);
    }
    ::malloc_trim(0);
    EXPECT_EQ(usage().tokens, 0u);
}

TEST(Adopt, NeverMeansProcessVm) {
    EXPECT_TRUE(in_child_process([] {
        ::setenv("ROCI_ADOPT", "never", 1);
        char* p = map_anonymous(kPage);
        Registration r(p, kPage);
        return r.error == 0 && r.covers() && r.none_shared();
    }));
}
