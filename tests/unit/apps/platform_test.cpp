// Tests of OsPlatform, which calls the operating system for rocid. Hostile clients pass truncated memory, descriptors
// of other files, and processes of other users.
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "apps/rocid/device_page.hpp"
#include "apps/rocid/remote_process.hpp"
#include "apps/rocid/sigbus_guard.hpp"
#include "lingering.hpp"
#include "platform_fixture.hpp"
#include "temporary_folder.hpp"

namespace roci::rocid {
namespace {

using namespace std::chrono_literals;

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
    // The client must not be able to remove pages from the arena. A removed page would be charged to rocid at rocid's
    // next access.
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
    std::memset(bad->base, 1, 4 * kPage);  // raises no SIGBUS, because zero pages have replaced the region already
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
    // Simulates a SIGBUS. The kernel raises it if a client has punched a hole into an arena of huge pages and no huge
    // page is free.
    ASSERT_TRUE(SigbusGuard::instance().handle(reinterpret_cast<uintptr_t>(bad.base) + kPage));
    EXPECT_TRUE(platform.is_lost(bad));
    EXPECT_FALSE(platform.is_lost(good));
    EXPECT_EQ(good.base[0], std::byte{'g'});
    bad.base[0] = std::byte{1};  // does not raise SIGBUS
    EXPECT_EQ(eventfd_read(SigbusGuard::instance().event_fd(), &n), 0) << "the conductor hears of it";
    platform.free_memory(bad);
    platform.free_memory(good);
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
        // The call maps only the second page of the file each time, so that the kernel does not merge adjacent
        // mappings.
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

// ---- the device page ----

/// A client's read-only mapping of the device page.
struct PageView {
    explicit PageView(int fd) {
        struct stat s {};
        EXPECT_EQ(fstat(fd, &s), 0);
        length = size_t(s.st_size);
        base = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, 0);
        EXPECT_NE(base, MAP_FAILED);
    }
    ~PageView() { munmap(base, length); }
    const abi::DevicePageHeader& header() const { return *static_cast<abi::DevicePageHeader*>(base); }
    const abi::DeviceRecord& record(uint32_t device) const {
        return *reinterpret_cast<const abi::DeviceRecord*>(static_cast<char*>(base) + header().first + device * header().stride);
    }
    bool owned() const {
        auto* word = reinterpret_cast<uint32_t*>(static_cast<char*>(base) + header().owner);
        return (std::atomic_ref(*word).load() & abi::kOwnerMask) != 0;
    }
    void* base = nullptr;
    size_t length = 0;
};

TEST(DevicePageMemory, ClientsCanReadItButNotWriteIt) {
    DevicePage page(2);
    abi::DeviceSnapshot s{};
    s.port.state = 4;
    page.publish(1, s);
    page.publish(2, s);  // device 2 does not exist
    const int fd = dup(page.fd());
    const PageView view(fd);
    EXPECT_EQ(view.header().devices, 2u);
    EXPECT_LE(view.header().bytes, view.length);
    abi::PortAttr port{};
    EXPECT_FALSE(view.record(0).read(0, port)) << "not published";
    ASSERT_TRUE(view.record(1).read(0, port));
    EXPECT_EQ(port.state, 4u);
    EXPECT_LT(mprotect(view.base, view.length, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(mmap(nullptr, view.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
    EXPECT_LT(ftruncate(fd, 0), 0);
    close(fd);
}

TEST(DevicePageMemory, ShowsTheEndOfItsProcess) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        DevicePage page(1);
        // The parent opens the child's descriptor through /proc, so the child sends only the number of the
        // descriptor.
        const int fd = page.fd();
        if (write(ends[1], &fd, sizeof fd) != sizeof fd) _exit(1);
        pause();
        _exit(2);
    }
    int fd = -1;
    ASSERT_EQ(read(ends[0], &fd, sizeof fd), ssize_t(sizeof fd));
    const int own = open(("/proc/" + std::to_string(child) + "/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(own, 0);
    const PageView view(own);
    EXPECT_TRUE(view.owned());
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(view.owned()) << "the kernel has cleared the word";
    close(own);
    close(ends[0]);
    close(ends[1]);
}

TEST(DevicePageMemory, ShowsAnOrderlyEnd) {
    DevicePage page(1);
    const PageView view(page.fd());
    EXPECT_TRUE(view.owned());
    page.end();
    EXPECT_FALSE(view.owned());
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
    platform.set_current_client({1, getuid() + 1, getgid()});  // this process could not open the memory of such a user
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

/// rocid may run as root. Therefore it must not write for a client into a file that is not the memory of a process.
TEST_F(Platform, AnyOtherDescriptorIsNoMemory) {
    const int before = open_descriptors();
    const TemporaryFolder folder;
    const std::string name = folder / "mem";
    for (const char* path : {name.c_str(), "/proc/self/comm", "/proc/self/status", "/dev/zero"}) {
        SCOPED_TRACE(path);
        auto p = platform.process_memory(open(path, (path == name.c_str() ? O_CREAT | O_RDWR : O_RDONLY) | O_CLOEXEC, 0600));
        ASSERT_NE(p, nullptr);
        std::byte byte{};
        EXPECT_FALSE(p->write(0, &byte, 1));
        EXPECT_FALSE(p->read(0, &byte, 1));
    }
    EXPECT_EQ(std::filesystem::file_size(name), 0u);
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
