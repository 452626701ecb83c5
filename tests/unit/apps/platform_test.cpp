// rocid's use of the operating system, with hostile clients: truncated memory, foreign files, foreign processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "apps/rocid/event_pipes.hpp"
#include "apps/rocid/os_platform.hpp"
#include "apps/rocid/remote_process.hpp"
#include "apps/rocid/sigbus_guard.hpp"
#include "lingering.hpp"

namespace roci::rocid {
namespace {

using namespace std::chrono_literals;
constexpr uint64_t kPage = 4096;

int client_memory(uint64_t length, char fill = 'x') {
    const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const std::string bytes(length, fill);
    EXPECT_EQ(write(fd, bytes.data(), length), ssize_t(length));
    return fd;
}

int open_descriptors() {
    int n = 0;
    for (int fd = 0; fd < 256; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
}

struct Platform : testing::Test {
    EventPipes pipes;
    EnginePageMemory page;
    pmd::Sleeper sleeper;
    Reaper reaper;
    MemoryBudget budget;
    OsPlatform platform{pipes, page, pmd::Hugepages::never, reaper, budget};
    std::string why;
    pmd::WakeFlag lcore;
    SlowThreads slow_threads{{&lcore}};
    void SetUp() override {
        platform.set_sleepers({&sleeper});
        platform.set_slow_threads(&slow_threads);
    }
    void TearDown() override { pipes.stop(); }
    int settled_descriptors() const {
        EXPECT_TRUE(reaper.drain(10'000));
        return open_descriptors();
    }
};

// ---- memory ----

TEST_F(Platform, ArenaMemoryIsZeroedSealedAndShared) {
    const host::SharedMemory m = platform.make_memory(3 * kPage, why);
    ASSERT_NE(m.base, nullptr) << why;
    for (uint64_t i = 0; i < m.length; ++i) ASSERT_EQ(m.base[i], std::byte{0});
    EXPECT_LT(ftruncate(m.fd, 0), 0) << "a client must not shrink it under rocid";
    EXPECT_LT(ftruncate(m.fd, 8 * kPage), 0);
    auto* client = static_cast<char*>(mmap(nullptr, m.length, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0));
    ASSERT_NE(client, MAP_FAILED);
    client[5] = 'c';
    EXPECT_EQ(m.base[5], std::byte{'c'});
    munmap(client, m.length);
    platform.free_memory(m);
}

TEST_F(Platform, AClientsChunkKeepsItsPages) {
    const int before = open_descriptors();
    const int fd = client_memory(3 * kPage), own = dup(fd);
    auto* client = static_cast<char*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0));
    const host::SharedMemory m = platform.map_chunk(fd, 3 * kPage, why);
    ASSERT_NE(m.base, nullptr) << why;
    client[5] = 'c';
    EXPECT_EQ(m.base[5], std::byte{'c'});
    // The client must not be able to remove pages, because a removed page would be charged to rocid at rocid's next access.
    EXPECT_LT(ftruncate(own, kPage), 0);
    EXPECT_LT(fallocate(own, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
    EXPECT_LT(madvise(client, kPage, MADV_REMOVE), 0);
    munmap(client, 3 * kPage);
    close(own);
    platform.free_memory(m);
    EXPECT_EQ(platform.mapped_regions(), 0u);
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Platform, AChunkThatDoesNotKeepItsPagesIsRefused) {
    const int before = open_descriptors();
    const auto refused = [&](int fd, uint64_t length) {
        const host::SharedMemory m = platform.map_chunk(fd, length, why);
        return m.base == nullptr && !why.empty();
    };
    const int holes = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(holes, 2 * kPage), 0);
    EXPECT_TRUE(refused(holes, 2 * kPage)) << "without pages";
    const int sealed = client_memory(kPage);
    ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SEAL), 0);
    EXPECT_TRUE(refused(sealed, kPage)) << "cannot be sealed";
    EXPECT_TRUE(refused(client_memory(2 * kPage), kPage)) << "longer";
    EXPECT_TRUE(refused(client_memory(kPage), 2 * kPage)) << "shorter";
    EXPECT_TRUE(refused(open("/dev/zero", O_RDWR | O_CLOEXEC), kPage));
    EXPECT_EQ(platform.mapped_regions(), 0u);
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Platform, AnImpossibleArenaIsRefusedWithAReason) {
    const host::SharedMemory m =
        platform.make_memory(uint64_t{1} << 63, why);  // no file can have this length, whatever memory the machine has
    EXPECT_EQ(m.base, nullptr);
    EXPECT_NE(why.find("more than half"), std::string::npos) << why;
    EXPECT_TRUE(leaves_enough(512, 1024));
    EXPECT_FALSE(leaves_enough(513, 1024));
    EXPECT_TRUE(leaves_enough(513, 0)) << "unknown: the kernel decides";
}

TEST_F(Platform, MapsAClientsMemoryAndTakesTheDescriptor) {
    const int before = open_descriptors();
    const int fd = client_memory(2 * kPage);
    const int own = dup(fd);
    auto r = platform.map_region(fd, 2 * kPage, true, why);
    ASSERT_NE(r, nullptr) << why;
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
    r->base[7] = std::byte{'!'};
    char c = 0;
    ASSERT_EQ(pread(own, &c, 1, 7), 1);
    EXPECT_EQ(c, '!');
    platform.unmap_region(*r);
    EXPECT_EQ(platform.mapped_regions(), 0u);
    close(own);
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Platform, RefusesWhatMustNotBeMappedAndClosesIt) {
    const int before = open_descriptors();
    EXPECT_EQ(platform.map_region(client_memory(kPage), 2 * kPage, true, why), nullptr);
    EXPECT_NE(why.find("4096 bytes, fewer than the 8192"), std::string::npos) << why;
    EXPECT_EQ(platform.map_region(client_memory(kPage), 0, true, why), nullptr);
    EXPECT_EQ(platform.map_region(client_memory(kPage), ~uint64_t{0}, true, why), nullptr);
    EXPECT_EQ(platform.map_region(open("/dev/zero", O_RDWR | O_CLOEXEC), kPage, true, why), nullptr);
    EXPECT_EQ(platform.map_region(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), kPage, false, why), nullptr);
    EXPECT_NE(why.find("not shared memory"), std::string::npos) << why;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    EXPECT_EQ(platform.map_region(ends[0], kPage, false, why), nullptr);
    close(ends[1]);
    const int sealed = client_memory(kPage);
    ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), 0);
    EXPECT_EQ(platform.map_region(sealed, kPage, true, why), nullptr);
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(platform.mapped_regions(), 0u);
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Platform, ADescriptorThatLingersHoldsNobody) {
    LingeringSocket unwanted, no_memory;
    platform.set_current_client({1, 1000, 1000});
    platform.close_fd(unwanted.take());
    EXPECT_EQ(platform.map_region(no_memory.take(), kPage, true, why), nullptr);
    EXPECT_EQ(reaper.closing(1000), 2u);
    platform.set_current_client({2, 1001, 1001});
    auto other = platform.map_region(client_memory(kPage), kPage, true, why);
    ASSERT_NE(other, nullptr) << why;
    platform.unmap_region(*other);
    platform.close_fd(client_memory(kPage));
    for (int i = 0; i < 5000 && reaper.pending() > 2; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(reaper.pending(), 2u) << "another user's descriptors and memory do not wait for them";
    EXPECT_EQ(reaper.closing(1000), 2u);
}

// ---- SIGBUS ----

TEST_F(Platform, ATruncatedRegionIsPoisonedAndNobodyElseIsHurt) {
    const int fd = client_memory(4 * kPage), own = dup(fd);
    auto bad = platform.map_region(fd, 4 * kPage, true, why);
    auto good = platform.map_region(client_memory(kPage, 'g'), kPage, true, why);
    ASSERT_TRUE(bad != nullptr && good != nullptr);
    const uint64_t before = SigbusGuard::instance().poisoned();

    ASSERT_EQ(ftruncate(own, kPage), 0);
    std::string out(4 * kPage, '?');
    std::memcpy(out.data(), bad->base, 4 * kPage);  // raises SIGBUS at the second page
    EXPECT_TRUE(bad->poisoned.load());
    EXPECT_EQ(out[0], 'x');
    EXPECT_EQ(out[2 * kPage], '\0');
    std::memset(bad->base, 1, 4 * kPage);  // raises no further SIGBUS
    EXPECT_EQ(SigbusGuard::instance().poisoned(), before + 1);

    EXPECT_FALSE(good->poisoned.load());
    EXPECT_EQ(good->base[0], std::byte{'g'});
    platform.unmap_region(*bad);
    platform.unmap_region(*good);
    close(own);
}

TEST_F(Platform, ManyRegionsComeAndGoAndTheRightOneIsPoisoned) {
    std::vector<std::unique_ptr<mem::MappedRegion>> regions;
    std::vector<int> own;
    for (int i = 0; i < 100; ++i) {
        const int fd = client_memory(kPage);
        own.push_back(dup(fd));
        regions.push_back(platform.map_region(fd, kPage, true, why));
    }
    for (int i = 0; i < 100; i += 2) platform.unmap_region(*regions[size_t(i)]);
    ASSERT_EQ(ftruncate(own[51], 0), 0);
    EXPECT_EQ(*const_cast<volatile char*>(reinterpret_cast<char*>(regions[51]->base)), 0);
    for (int i = 1; i < 100; i += 2) EXPECT_EQ(regions[size_t(i)]->poisoned.load(), i == 51) << i;
    for (int i = 1; i < 100; i += 2) platform.unmap_region(*regions[size_t(i)]);
    for (const int fd : own) close(fd);
}

TEST_F(Platform, APageThatIsMissingInAnArenaPoisonsTheArenaOnly) {
    const host::SharedMemory bad = platform.make_memory(2 * kPage, why), good = platform.make_memory(kPage, why);
    ASSERT_TRUE(bad.base != nullptr && good.base != nullptr) << why;
    good.base[0] = std::byte{'g'};
    eventfd_t n;
    eventfd_read(SigbusGuard::instance().event_fd(), &n);
    // The kernel raises such a SIGBUS when a client has punched a hole into an arena of huge pages and no huge page is free.
    ASSERT_TRUE(SigbusGuard::instance().handle(reinterpret_cast<uintptr_t>(bad.base) + kPage));
    EXPECT_TRUE(platform.is_lost(bad));
    EXPECT_FALSE(platform.is_lost(good));
    EXPECT_EQ(good.base[0], std::byte{'g'});
    bad.base[0] = std::byte{1};  // does not raise SIGBUS
    EXPECT_EQ(eventfd_read(SigbusGuard::instance().event_fd(), &n), 0) << "the conductor hears of it";
    platform.free_memory(bad);
    platform.free_memory(good);
}

/// Fake files of rocid's control groups, with limits and usage.
struct FakeGroup {
    std::filesystem::path folder;
    FakeGroup() {
        char name[] = "/tmp/roci-XXXXXX";
        folder = mkdtemp(name);
        put("cgroup", "0::/one/two\n");
    }
    ~FakeGroup() { std::filesystem::remove_all(folder); }
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

/// Regions of 16 pages in a control group that has 16 of 32 pages left. So a user has a credit of two pages, and all users
/// together have a credit of eight pages.
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
    /// Returns the number of pages that can be accessed before the region is poisoned.
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
    group.limit("one/two", 32 * kPage, 31 * kPage);
    pollfd timer{.fd = limited->hole_timer_fd(), .events = POLLIN, .revents = 0};
    limited->renew_hole_credit();
    group.limit("one/two", 32 * kPage, 16 * kPage);
    limited->renew_hole_credit();
    group.limit("one/two", 32 * kPage, 31 * kPage);
    usleep(20'000);  // the files are read again after 10 ms
    (void)limited->has_memory(0, why);
    group.limit("one/two", 32 * kPage, 16 * kPage);
    ASSERT_EQ(poll(&timer, 1, 60'000), 1) << "nothing was filled, but the pool is to be renewed";
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

/// A control group of 4096 pages, of which 2048 are left. So the pool has 1024 pages, and a user has a share of 256 per second.
struct HolePool : Holes {
    static constexpr uint64_t kLimit = 4096, kUsed = 2048, kPool = 1024;
    uint64_t allocated = 0;  ///< pages that rocid has filled and that are not free again

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
    /// Lets the user take what it gets, up to `most` pages. Returns the number of pages.
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
        allocated += kPool / 4;  // for example for QPs
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

/// The test runs in a child process, because it uses up all mappings that the kernel allows.
TEST_F(Platform, ATruncatedRegionIsPoisonedAlsoWhenNoMappingIsLeft) {
    const int fd = client_memory(kPage), own = dup(fd);
    auto region = platform.map_region(fd, kPage, true, why);
    ASSERT_NE(region, nullptr) << why;
    const int child = fork();
    if (child == 0) {
        const int other = memfd_create("other", MFD_CLOEXEC);
        if (ftruncate(other, 2 * kPage) != 0) _exit(2);
        // Maps only the second page each time, so that the kernel does not merge adjacent mappings.
        while (mmap(nullptr, kPage, PROT_READ, MAP_SHARED, other, kPage) != MAP_FAILED) {
        }
        if (ftruncate(own, 0) != 0) _exit(3);
        const char c = *const_cast<volatile char*>(reinterpret_cast<char*>(region->base));
        _exit(c == 0 && region->poisoned.load() ? 0 : 4);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    platform.unmap_region(*region);
    close(own);
}

TEST(SigbusGuardDeathTest, AnyOtherSigbusStillEndsTheProcess) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            SigbusGuard::instance();
            const int fd = memfd_create("other", 0);
            auto* p = static_cast<volatile char*>(mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0));
            [[maybe_unused]] const char c = *p;
            _exit(0);
        },
        testing::KilledBySignal(SIGBUS), "");
}

// ---- the engine page ----

TEST_F(Platform, ClientsCanReadTheEnginePageButNotWriteIt) {
    const int fd = dup(platform.engine_page_fd());
    page.page().engine[0].sleeping = 1;
    void* p = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(p, MAP_FAILED);
    EXPECT_EQ(static_cast<abi::EnginePage*>(p)->engine[0].sleeping, 1u);
    EXPECT_LT(mprotect(p, kPage, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
    EXPECT_LT(ftruncate(fd, 0), 0);
    munmap(p, kPage);
    close(fd);
}

TEST_F(Platform, AWakeDescriptorWakesUntilItsSessionIsClosed) {
    const int before = open_descriptors();
    const int fd = dup(platform.make_wake_fd(9, 0));  // the descriptor that a client gets
    ASSERT_GE(fd, 0);
    EXPECT_EQ(platform.make_wake_fd(9, 1), -1) << "there is one engine";
    sleeper.sleep(0);
    const uint64_t one = 1;
    ASSERT_EQ(write(fd, &one, sizeof one), ssize_t(sizeof one));
    EXPECT_TRUE(sleeper.sleep(1'000'000'000));
    EXPECT_FALSE(sleeper.sleep(1'000'000)) << "one write, one wake-up";
    platform.close_wake_fds(9);
    ASSERT_EQ(write(fd, &one, sizeof one), ssize_t(sizeof one));
    EXPECT_FALSE(sleeper.sleep(1'000'000)) << "a client that keeps it wakes nobody";
    close(fd);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Platform, TextIsReadFromTheStart) {
    const int fd = platform.make_text_fd("{\"a\": 1}");
    char buffer[32] = {};
    EXPECT_EQ(read(fd, buffer, sizeof buffer), 8);
    EXPECT_STREQ(buffer, "{\"a\": 1}");
    EXPECT_LT(write(fd, "x", 1), 0);
    close(fd);
}

// ---- another process's memory ----

struct Child {
    int pid;
    char* shared_address;
    explicit Child(char* address) : shared_address(address) {
        pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
    }
    ~Child() { end(); }
    void end() {
        if (pid <= 0) return;
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        pid = 0;
    }
};

TEST_F(Platform, ReadsAndWritesAClientsMemoryTheSlowWay) {
    std::vector<char> memory(3 * kPage, 'm');
    Child child(memory.data());
    platform.set_current_client({child.pid, getuid(), getgid()});
    auto p = platform.remote_process(child.pid);
    if (p == nullptr) GTEST_SKIP() << "not permitted here";
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    std::string out(2 * kPage, '?');
    ASSERT_TRUE(p->read(address + 100, reinterpret_cast<std::byte*>(out.data()), out.size()));
    EXPECT_EQ(out, std::string(2 * kPage, 'm'));
    ASSERT_TRUE(p->write(address + kPage - 2, reinterpret_cast<const std::byte*>("child"), 5));
    ASSERT_TRUE(p->read(address + kPage - 2, reinterpret_cast<std::byte*>(out.data()), 5));
    EXPECT_EQ(out.substr(0, 5), "child");
    EXPECT_EQ(memory[kPage], 'm') << "the child's copy, not ours";
    EXPECT_FALSE(p->read(8, reinterpret_cast<std::byte*>(out.data()), 1)) << "not mapped there";
    child.end();
    EXPECT_FALSE(p->read(address, reinterpret_cast<std::byte*>(out.data()), 1)) << "the process is gone";
}

TEST_F(Platform, AClientsOwnDescriptorOfItsMemoryIsEnough) {
    const int before = open_descriptors();
    std::vector<char> memory(2 * kPage, 'm');
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    platform.set_current_client({1, getuid() + 1, getgid()});  // a user whose memory this process could not open by itself
    auto p = platform.process_memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    ASSERT_NE(p, nullptr);
    char out[6] = {};
    ASSERT_TRUE(p->write(address + kPage - 2, reinterpret_cast<const std::byte*>("abcde"), 5));
    ASSERT_TRUE(p->read(address + kPage - 2, reinterpret_cast<std::byte*>(out), 5));
    EXPECT_STREQ(out, "abcde");
    EXPECT_EQ(memory[kPage], 'c');
    p.reset();
    EXPECT_EQ(settled_descriptors(), before);
}

/// rocid may run as root, so it must not write for a client into a file that is not the memory of a process.
TEST_F(Platform, AnyOtherDescriptorIsNoMemory) {
    const int before = open_descriptors();
    char name[] = "/tmp/roci-XXXXXX/mem";
    name[16] = 0;
    ASSERT_NE(mkdtemp(name), nullptr);
    name[16] = '/';
    for (const char* path : {static_cast<const char*>(name), "/proc/self/comm", "/proc/self/status", "/dev/zero"}) {
        SCOPED_TRACE(path);
        auto p = platform.process_memory(open(path, (path == name ? O_CREAT | O_RDWR : O_RDONLY) | O_CLOEXEC, 0600));
        ASSERT_NE(p, nullptr);
        std::byte byte{};
        EXPECT_FALSE(p->write(0, &byte, 1));
        EXPECT_FALSE(p->read(0, &byte, 1));
    }
    EXPECT_EQ(std::filesystem::file_size(name), 0u);
    unlink(name);
    name[16] = 0;
    rmdir(name);
    EXPECT_EQ(settled_descriptors(), before);
}

TEST_F(Platform, ADescriptorThatLingersAsMemoryHoldsNobody) {
    LingeringSocket socket;
    platform.set_current_client({1, 1000, 1000});
    platform.process_memory(socket.take()).reset();
    EXPECT_EQ(reaper.closing(1000), 1u);
}

TEST_F(Platform, OnlyTheProcessAndUserOfTheRequestAreReached) {
    char byte = 'b';
    Child child(&byte);
    platform.set_current_client({child.pid, getuid() + 1, getgid()});
    EXPECT_EQ(platform.remote_process(child.pid), nullptr) << "another user's process";
    platform.set_current_client({child.pid, getuid(), getgid()});
    EXPECT_EQ(platform.remote_process(1), nullptr);
    EXPECT_EQ(platform.remote_process(0), nullptr);
}

}  // namespace
}  // namespace roci::rocid
