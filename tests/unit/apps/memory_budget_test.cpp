// Tests of a rocid in a control group with a memory limit. They check the size of the memory that is left, and what
// rocid does when clients remove pages from registered memory.
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "platform_fixture.hpp"
#include "temporary_folder.hpp"

namespace roci::rocid {
namespace {

/// Fake files of rocid's control groups, with limits and usage.
struct FakeGroup {
    const TemporaryFolder temporary;
    const std::filesystem::path& folder = temporary.path;
    FakeGroup() { put("cgroup", "0::/one/two\n"); }
    void put(const std::string& file, const std::string& text) const {
        std::filesystem::create_directories((folder / file).parent_path());
        std::ofstream(folder / file) << text;
    }
    void limit(const std::string& group, uint64_t most, uint64_t used, uint64_t files = 0) const {
        put(group + "/memory.max", std::to_string(most));
        put(group + "/memory.current", std::to_string(used));
        put(group + "/memory.stat", "anon 5\ninactive_file " + std::to_string(files) + "\nactive_file 0\n");
    }
    MemoryBudget budget() const { return MemoryBudget{folder, folder / "cgroup"}; }
};

constexpr uint64_t kMiB = 1 << 20;

TEST(Budget, TheTightestLimitOfTheGroupAndItsAncestorsCounts) {
    FakeGroup group;
    std::string why;
    EXPECT_FALSE(group.budget().limited());
    EXPECT_TRUE(group.budget().allows(uint64_t{1} << 50, why));
    group.put("one/two/memory.max", "max\n");
    EXPECT_FALSE(group.budget().limited());
    group.limit("one/two", 256 * kMiB, 100 * kMiB);
    EXPECT_EQ(group.budget().available(), 156 * kMiB);
    EXPECT_TRUE(group.budget().allows(124 * kMiB, why)) << why;
    EXPECT_FALSE(group.budget().allows(125 * kMiB, why)) << "the reserve of 32 MiB";
    EXPECT_NE(why.find("256 MiB, and 156 MiB are left"), std::string::npos) << why;
    group.limit("one", 512 * kMiB, 500 * kMiB);
    EXPECT_EQ(group.budget().available(), 12 * kMiB);
    group.limit("one", 512 * kMiB, 500 * kMiB, 40 * kMiB);
    EXPECT_EQ(group.budget().available(), 52 * kMiB) << "pages of files can be given up";
    group.limit("one", 512 * kMiB, 600 * kMiB);
    EXPECT_EQ(group.budget().available(), 0u) << "the limit was lowered below what is used";
}

TEST(Budget, OfVersionOneToo) {
    FakeGroup group;
    group.put("cgroup", "9:name=systemd:/\n4:cpu,memory:/m\n0::/\n");
    group.put("memory/m/memory.limit_in_bytes", "9223372036854771712");
    group.put("memory/m/memory.usage_in_bytes", "1");
    EXPECT_FALSE(group.budget().limited()) << "a number beyond any memory";
    group.put("memory/m/memory.limit_in_bytes", std::to_string(64 * kMiB));
    EXPECT_EQ(group.budget().available(), 64 * kMiB - 1);
}

TEST(Budget, ReadsTheSlowFilesAtMostOncePerTenMilliseconds) {
    FakeGroup group;
    Nanos now = 1'000'000'000;
    group.limit("one/two", 256 * kMiB, 200 * kMiB, 10 * kMiB);
    MemoryBudget budget(group.folder, group.folder / "cgroup", [&] { return now; });
    EXPECT_EQ(budget.available(), 66 * kMiB);
    EXPECT_EQ(budget.available_above_quarter(), 2 * kMiB);
    group.limit("one/two", 512 * kMiB, 210 * kMiB, 30 * kMiB);
    now += MemoryBudget::kAge - 1;
    budget.refresh();
    EXPECT_EQ(budget.available(), 56 * kMiB) << "only the used bytes are read anew";
    EXPECT_EQ(budget.available_above_quarter(), 0u);
    now += 1;
    EXPECT_EQ(budget.available(), 76 * kMiB) << "memory.stat";
    budget.refresh();
    EXPECT_EQ(budget.available(), 302 * kMiB) << "the limit";
}

/// Regions of 16 pages in a control group that has 16 of 32 pages left. rocid fills removed pages again up to a
/// credit. With these numbers the credit of one user is two pages, and the credit of all users together is eight
/// pages.
struct Holes : Platform {
    FakeGroup group;
    Nanos now = 1'000'000'000;
    std::unique_ptr<MemoryBudget> small;
    std::unique_ptr<OsPlatform> limited;
    static constexpr uint64_t kPages = 16;
    std::vector<std::unique_ptr<mem::MappedRegion>> regions;

    void SetUp() override {
        HoleFiller filler;
        if (!filler.open()) GTEST_SKIP() << "no userfaultfd: " << std::strerror(errno);
        group.limit("one/two", 32 * kPage, 16 * kPage);
        small = std::make_unique<MemoryBudget>(group.folder, group.folder / "cgroup", [this] { return now; });
        limited = std::make_unique<OsPlatform>(pipes, page, pmd::Hugepages::never, reaper, *small);
    }
    void TearDown() override {
        for (auto& r : regions) limited->unmap_region(*r);
    }
    /// Maps a region for the user and removes all its pages.
    mem::MappedRegion& region(uint32_t uid) {
        limited->set_current_client({1, uid, uid});
        EXPECT_EQ(limited->client_flags(), uint32_t(abi::kPopulate)) << "as in open_device";
        const int fd = client_memory(kPages * kPage), own = dup(fd);
        regions.push_back(limited->map_region(fd, kPages * kPage, true, why));
        EXPECT_EQ(fallocate(own, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPages * kPage), 0);
        close(own);
        return *regions.back();
    }
    /// Returns the number of pages that can be accessed before the SIGBUS guard poisons the region (replaces it by zero pages).
    static uint64_t filled(mem::MappedRegion& r) {
        auto* bytes = reinterpret_cast<volatile char*>(r.base);
        for (uint64_t i = 0; i < kPages; ++i) {
            EXPECT_EQ(bytes[i * kPage], 0);
            if (r.poisoned.load()) return i;
        }
        return kPages;
    }
};

TEST_F(Holes, PagesThatAClientRemovesAreFilledUpToACredit) {
    const int fd = client_memory(8 * kPage), own = dup(fd);
    auto region = limited->map_region(fd, 8 * kPage, true, why);
    ASSERT_NE(region, nullptr) << why;
    ASSERT_EQ(fallocate(own, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage, 7 * kPage), 0);
    auto* bytes = reinterpret_cast<volatile char*>(region->base);
    EXPECT_EQ(bytes[0], 'x') << "pages that are there are no fault";
    EXPECT_EQ(bytes[kPage], 0);
    bytes[2 * kPage] = 'w';
    char c = 0;
    ASSERT_EQ(pread(own, &c, 1, 2 * kPage), 1);
    EXPECT_EQ(c, 'w') << "in the file";
    EXPECT_FALSE(region->poisoned.load());
    EXPECT_EQ(bytes[3 * kPage], 0);
    EXPECT_TRUE(region->poisoned.load()) << "two pages were allowed";
    limited->unmap_region(*region);
    close(own);
}

TEST_F(Holes, TheCreditIsTheUsersWhateverNumberOfDevicesAndRegionsItOpens) {
    EXPECT_EQ(filled(region(1000)), 2u);
    EXPECT_EQ(filled(region(1000)), 0u);
    EXPECT_EQ(filled(region(1001)), 2u);
}

TEST_F(Holes, AllUsersTogetherLeaveAQuarterOfTheLimit) {
    for (uint32_t uid = 1000; uid < 1004; ++uid) EXPECT_EQ(filled(region(uid)), 2u);
    EXPECT_EQ(filled(region(1004)), 0u);
    limited->renew_hole_credit();
    group.limit("one/two", 32 * kPage, 23 * kPage);
    ASSERT_TRUE(limited->has_memory(0, why)) << why;
    EXPECT_EQ(filled(region(1005)), 1u) << "less is left than at the last renewal";
}

TEST_F(Holes, TimeRenewsTheCreditWhileMemoryIsFree) {
    EXPECT_EQ(filled(region(1000)), 2u);
    pollfd timer{.fd = limited->hole_timer_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&timer, 1, 60'000), 1) << "the timer expires a second later";
    limited->renew_hole_credit();
    EXPECT_EQ(poll(&timer, 1, 0), 0) << "and rests until the next page";
    EXPECT_EQ(filled(region(1000)), 2u);
    group.limit("one/two", 32 * kPage, 25 * kPage);
    limited->renew_hole_credit();
    EXPECT_EQ(filled(region(1000)), 0u) << "the memory did not become free";
}

TEST_F(Holes, AShortageOfMemoryLowersThePoolOnlyForASecond) {
    mem::MappedRegion& early = region(1000);
    group.limit("one/two", 32 * kPage, 31 * kPage);
    EXPECT_FALSE(limited->has_memory(0, why)) << "lowers the pool";
    group.limit("one/two", 32 * kPage, 16 * kPage);
    pollfd timer{.fd = limited->hole_timer_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&timer, 1, 60'000), 1) << "nothing was filled, but the pool is to be renewed";
    EXPECT_EQ(filled(early), 0u) << "until then the pool is low";
    limited->renew_hole_credit();
    EXPECT_EQ(filled(region(1000)), 2u);
}

TEST_F(Holes, AChunkWithBlocksBeyondItsEndHasNoMoreThanTheCredit) {
    const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(fd, 4 * kPage), 0);
    ASSERT_EQ(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4 * kPage, 4 * kPage), 0);
    const host::SharedMemory m = limited->map_chunk(fd, 4 * kPage, why);
    ASSERT_NE(m.base, nullptr) << why;
    auto* bytes = reinterpret_cast<volatile char*>(m.base);
    EXPECT_EQ(bytes[0] + bytes[kPage], 0);
    EXPECT_FALSE(limited->is_lost(m));
    EXPECT_EQ(bytes[2 * kPage], 0);
    EXPECT_TRUE(limited->is_lost(m));
    limited->free_memory(m);
}

/// A control group of 4096 pages, of which 2048 are left. The pool of pages with which rocid fills holes has 1024
/// pages, and the share of a user is 256 pages per second.
struct HolePool : Holes {
    static constexpr uint64_t kLimit = 4096, kUsed = 2048, kPool = 1024;
    uint64_t allocated = 0;  ///< pages with which rocid has filled holes and which are not free again

    void SetUp() override {
        Holes::SetUp();
        if (IsSkipped()) return;
        renew();
    }
    void renew() {
        now += 1'000'000'000;
        group.limit("one/two", kLimit * kPage, (kUsed + allocated) * kPage);
        limited->renew_hole_credit();
    }
    /// Removes pages of the user's regions and accesses them, until rocid fills no more pages or `most` pages are
    /// filled. Returns the number of filled pages.
    uint64_t take(uint32_t uid, uint64_t most = UINT64_MAX) {
        uint64_t taken = 0;
        for (uint64_t n = kPages; n == kPages && taken < most;) taken += n = filled(region(uid));
        allocated += taken;
        return taken;
    }
    void unmap_all() {
        for (auto& r : regions) limited->unmap_region(*r);
        regions.clear();
    }
};

TEST_F(HolePool, AUserWhoKeepsThePagesGetsHalfOfThePoolAtMost) {
    for (int i = 0; i < 20; ++i, renew()) take(1000);
    EXPECT_EQ(allocated, kPool / 2);
    EXPECT_EQ(take(1000), 0u);
    unmap_all();
    EXPECT_EQ(take(1000), 0u) << "the debt stays while the memory is not free";
    for (int i = 0; i < 20; ++i, renew()) take(1001);
    EXPECT_EQ(allocated, kPool / 2 + kPool / 4) << "half of what is left";
    EXPECT_GE(take(1002), kPages) << "there is something for every further user";
}

TEST_F(HolePool, MemoryThatBecomesFreeSettlesTheDebt) {
    for (int i = 0; i < 20; ++i, renew()) take(1000);
    allocated = 0;
    renew();
    EXPECT_EQ(take(1000), (kLimit - kUsed) / 8);
    for (int i = 0; i < 20; ++i) {
        allocated = 0;
        renew();
        EXPECT_EQ(take(1000), (kLimit - kUsed) / 8) << "whoever frees the pages gets the whole share each time";
    }
}

TEST_F(HolePool, PagesThatOthersFreeSettleNoOlderDebt) {
    for (int i = 0; i < 20; ++i, renew()) take(1000);
    const uint64_t kept = allocated;
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(take(1001, 4 * kPages), 4 * kPages) << i;
        allocated = kept;
        renew();
    }
    EXPECT_EQ(take(1000), 0u);
}

TEST_F(HolePool, MemoryThatRocidAllocatesAndFreesSettlesNoDebt) {
    for (int i = 0; i < 20; ++i, renew()) take(1000);
    for (int i = 0; i < 5; ++i) {
        allocated += kPool / 4;  // another allocation of rocid, for example for QPs
        renew();
        allocated -= kPool / 4;
        renew();
    }
    EXPECT_EQ(take(1000), 0u);
}

TEST_F(HolePool, AUserWithoutMappingsAndDebtIsForgotten) {
    for (uint32_t uid = 1000; uid < 1100; ++uid) region(uid);
    EXPECT_EQ(limited->hole_users(), 100u);
    take(2000);
    unmap_all();
    EXPECT_EQ(limited->hole_users(), 1u) << "one has filled pages";
    renew();
    EXPECT_EQ(limited->hole_users(), 1u) << "and still has them";
    allocated = 0;
    renew();
    EXPECT_EQ(limited->hole_users(), 0u);
}

}  // namespace
}  // namespace roci::rocid
