// rocid's use of the operating system, with hostile clients: truncated memory, full pipes, foreign files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
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

template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 5000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(1ms);
    }
    return false;
}

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
    OsPlatform platform{pipes, page, pmd::Hugepages::never, reaper};
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

TEST_F(Platform, AnImpossibleArenaIsRefusedWithAReason) {
    const host::SharedMemory m =
        platform.make_memory(uint64_t{1} << 63, why);  // no file can be so long, whatever the machine has
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
    std::memcpy(out.data(), bad->base, 4 * kPage);  // faults in the second page
    EXPECT_TRUE(bad->poisoned.load());
    EXPECT_EQ(out[0], 'x');
    EXPECT_EQ(out[2 * kPage], '\0');
    std::memset(bad->base, 1, 4 * kPage);  // harmless now, and no further fault
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
    // As in the kernel when a client has punched a hole into an arena of huge pages and no huge page is free.
    ASSERT_TRUE(SigbusGuard::instance().handle(reinterpret_cast<uintptr_t>(bad.base) + kPage));
    EXPECT_TRUE(platform.is_lost(bad));
    EXPECT_FALSE(platform.is_lost(good));
    EXPECT_EQ(good.base[0], std::byte{'g'});
    bad.base[0] = std::byte{1};  // harmless
    EXPECT_EQ(eventfd_read(SigbusGuard::instance().event_fd(), &n), 0) << "the conductor hears of it";
    platform.free_memory(bad);
    platform.free_memory(good);
}

/// Runs in its own process, because it uses all mappings that the kernel allows.
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
    const int fd = dup(platform.make_wake_fd(9, 0));  // what the client gets
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

TEST_F(Platform, OnlyTheProcessAndUserOfTheRequestAreReached) {
    char byte = 'b';
    Child child(&byte);
    platform.set_current_client({child.pid, getuid() + 1, getgid()});
    EXPECT_EQ(platform.remote_process(child.pid), nullptr) << "another user's process";
    platform.set_current_client({child.pid, getuid(), getgid()});
    EXPECT_EQ(platform.remote_process(1), nullptr);
    EXPECT_EQ(platform.remote_process(0), nullptr);
}

// ---- event pipes ----

struct Pipes : testing::Test {
    io::EventRing ring{1024};
    EventPipes pipes;
    void push(const io::Event& e) {
        ASSERT_TRUE(soon([&] { return ring.push(e); }));
        pipes.wake_flag().notify();
    }
    static io::Event completion(uint32_t session, uint32_t channel, uint32_t cq, uint32_t generation = 1) {
        return {
            .kind = io::Event::Kind::completion, .session = session, .handle = cq, .generation = generation, .channel = channel};
    }
    void SetUp() override { pipes.start({&ring}); }
};

TEST_F(Pipes, EventsReachTheirChannelAndTheClientsEndBlocks) {
    const int a = pipes.make(1, 5), b = pipes.make(1, abi::kNoHandle);
    EXPECT_EQ(fcntl(a, F_GETFL) & O_NONBLOCK, 0);
    push(completion(1, 5, 33, 7));
    push({.kind = io::Event::Kind::async, .session = 1, .type = 4, .handle = 2, .generation = 3});
    abi::CompEventRecord c{};
    ASSERT_EQ(read(a, &c, sizeof c), ssize_t(sizeof c));
    EXPECT_EQ(c.cq_handle, 33u);
    EXPECT_EQ(c.generation, 7u);
    abi::AsyncEventRecord s{};
    ASSERT_EQ(read(b, &s, sizeof s), ssize_t(sizeof s));
    EXPECT_EQ(s.event_type, 4u);
    EXPECT_EQ(s.handle, 2u);
    EXPECT_EQ(s.generation, 3u);
    close(a);
    close(b);
}

TEST_F(Pipes, AFullPipeBlocksNobodyAndLosesNoCq) {
    const int slow = pipes.make(1, 1), quick = pipes.make(2, 1);
    constexpr uint32_t kCqs = 50, kRounds = 400;  // 20,000 records: more than a pipe holds
    for (uint32_t r = 0; r < kRounds; ++r)
        for (uint32_t cq = 0; cq < kCqs; ++cq) push(completion(1, 1, cq));
    ASSERT_TRUE(
        soon([&] { return pipes.counters().written + pipes.counters().kept + pipes.counters().merged == kCqs * kRounds; }));
    EXPECT_GT(pipes.counters().merged, 0u);
    EXPECT_LE(pipes.counters().kept, kCqs) << "what is kept is bounded by the CQs, not by the events";

    push(completion(2, 1, 99));  // another client is served meanwhile
    abi::CompEventRecord c{};
    ASSERT_EQ(read(quick, &c, sizeof c), ssize_t(sizeof c));
    EXPECT_EQ(c.cq_handle, 99u);

    push(completion(1, 1, kCqs));  // the newest CQ's only event comes while the pipe is full
    uint64_t got = 0;
    bool newest = false;
    for (pollfd p{slow, POLLIN, 0}; poll(&p, 1, 300) == 1; ++got) {
        ASSERT_EQ(read(slow, &c, sizeof c), ssize_t(sizeof c));
        newest = newest || c.cq_handle == kCqs;
    }
    EXPECT_TRUE(newest);
    EXPECT_EQ(got, pipes.counters().written - 1);
    close(slow);
    close(quick);
}

TEST_F(Pipes, AnLcoreSendsWhereTheEventThreadSleeps) {
    const int channel = pipes.make(1, 1);
    uint32_t sent = 0;
    const bool by_lcore = soon([&] {
        EXPECT_TRUE(ring.push(completion(1, 1, ++sent)));
        pipes.pushed(ring);
        return pipes.counters().by_lcore > 0;
    });
    EXPECT_TRUE(by_lcore);
    abi::CompEventRecord c{};
    for (uint32_t cq = 1; cq <= sent; ++cq) {
        ASSERT_EQ(read(channel, &c, sizeof c), ssize_t(sizeof c));
        EXPECT_EQ(c.cq_handle, cq) << "in order, whoever sent it";
    }
    close(channel);
}

TEST_F(Pipes, WhatMayWaitAnLcoreLeavesToTheEventThread) {
    const int full = pipes.make(1, 1), async = pipes.make(2, abi::kNoHandle), other = pipes.make(3, 1);
    constexpr uint32_t kRecords = 20'000;
    for (uint32_t i = 0; i < kRecords; ++i) {
        ASSERT_TRUE(soon([&] { return ring.push(completion(1, 1, i % 50)); }));
        pipes.pushed(ring);
    }
    ASSERT_TRUE(ring.push({.kind = io::Event::Kind::async, .session = 2, .type = 4, .handle = 2, .generation = 3}));
    pipes.pushed(ring);
    io::Event second = completion(3, 1, 9);
    second.vector = 1;
    ASSERT_TRUE(ring.push(second));
    pipes.pushed(ring);
    abi::AsyncEventRecord a{};
    ASSERT_EQ(read(async, &a, sizeof a), ssize_t(sizeof a));
    abi::CompEventRecord c{};
    ASSERT_EQ(read(other, &c, sizeof c), ssize_t(sizeof c));
    EXPECT_EQ(c.cq_handle, 9u);
    const EventPipes::Counters& n = pipes.counters();
    EXPECT_TRUE(soon([&] { return n.written + n.kept + n.merged == kRecords + 2; }));
    for (int fd : {full, async, other}) close(fd);
}

/// A page whose first access waits until the page is given: what a client's FUSE file or userfaultfd does to whoever copies to
/// it.
struct AbsentPage {
    int fd = -1;
    std::byte* page = nullptr;
    AbsentPage() {
        fd = int(syscall(SYS_userfaultfd, O_CLOEXEC));
        uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
        if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) return;
        void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uffdio_register r{.range = {reinterpret_cast<uint64_t>(p), kPage}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
        if (p != MAP_FAILED && ioctl(fd, UFFDIO_REGISTER, &r) == 0) page = static_cast<std::byte*>(p);
    }
    /// Waits until a thread waits for the page.
    void await_access() const {
        uffd_msg message;
        ASSERT_EQ(read(fd, &message, sizeof message), ssize_t(sizeof message));
    }
    void give() const {
        uffdio_zeropage z{.range = {reinterpret_cast<uint64_t>(page), kPage}, .mode = 0, .zeropage = 0};
        ASSERT_EQ(ioctl(fd, UFFDIO_ZEROPAGE, &z), 0);
    }
    ~AbsentPage() {
        if (page != nullptr) munmap(page, kPage);
        if (fd >= 0) close(fd);
    }
};

TEST_F(Pipes, AReaderThatNeverGetsItsBufferHoldsNobody) {
    const AbsentPage absent;
    if (absent.page == nullptr) GTEST_SKIP() << "no userfaultfd for accesses of the kernel (needs CAP_SYS_PTRACE)";
    const int channel = pipes.make(1, 1), other = pipes.make(2, 1);
    pipes.signal(1, 1, 1);
    std::thread reader([&] { EXPECT_EQ(read(channel, absent.page, sizeof(abi::CompEventRecord)), 8); });
    absent.await_access();  // it holds whatever lock a read holds
    pipes.signal(1, 1, 2);
    pipes.send_async(1, {1, 2, 3, 0});
    push(completion(1, 1, 3));
    push(completion(2, 1, 4));
    abi::CompEventRecord c{};
    ASSERT_EQ(read(other, &c, sizeof c), ssize_t(sizeof c));
    EXPECT_EQ(c.cq_handle, 4u);
    EXPECT_GE(pipes.make(3, abi::kNoHandle), 0) << "and a device still opens";
    absent.give();
    reader.join();
    close(channel);
    close(other);
}

TEST_F(Pipes, AClientCanSendNothingToRocid) {
    const int channel = pipes.make(1, 1);
    EXPECT_LT(send(channel, "x", 1, MSG_NOSIGNAL), 0) << "descriptors that lie unread would be closed by rocid";
    EXPECT_EQ(errno, EPIPE);
    close(channel);
}

TEST_F(Pipes, AClosedReaderOrAClosedPipeIsNoTrouble) {
    signal(SIGPIPE, SIG_IGN);
    const int a = pipes.make(1, 1);
    close(a);
    for (uint32_t i = 0; i < 100; ++i) push(completion(1, 1, i));
    push(completion(7, 7, 7));
    ASSERT_TRUE(soon([&] { return pipes.counters().no_pipe >= 1; }));
    pipes.close(1, 1);
    pipes.close(1, 1);
    EXPECT_EQ(pipes.pipes(), 0u);
    pipes.send_async(3, {1, 2, 3, 0});
    EXPECT_EQ(pipes.counters().no_pipe, 2u);
}

TEST_F(Pipes, ClosingRacesWithDelivery) {
    std::atomic<bool> stop{false};
    std::thread storm([&] {
        while (!stop) {
            ring.push(completion(1, 1, 1));
            pipes.wake_flag().notify();
        }
    });
    for (int i = 0; i < 500; ++i) {
        const int fd = pipes.make(1, 1);
        ASSERT_GE(fd, 0);
        pollfd p{fd, POLLIN, 0};
        ASSERT_EQ(poll(&p, 1, 5000), 1);
        pipes.close(1, 1);
        close(fd);
    }
    stop = true;
    storm.join();
}

}  // namespace
}  // namespace roci::rocid
