// Tests of the sockets that carry events to clients: full sockets, closed sockets, and clients whose read() does not
// return.
#include "apps/rocid/event_pipes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "soon.hpp"

namespace roci::rocid {
namespace {

constexpr uint64_t kPage = 4096;

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

TEST_F(Pipes, AFullPipeDelaysNoOtherClientAndKeepsAnEventOfEachCq) {
    const int slow = pipes.make(1, 1), quick = pipes.make(2, 1);
    constexpr uint32_t kCqs = 50, kRounds = 400;  // 20,000 records are more than a socket holds
    for (uint32_t r = 0; r < kRounds; ++r)
        for (uint32_t cq = 0; cq < kCqs; ++cq) push(completion(1, 1, cq));
    ASSERT_TRUE(
        soon([&] { return pipes.counters().written + pipes.counters().kept + pipes.counters().merged == kCqs * kRounds; }));
    EXPECT_GT(pipes.counters().merged, 0u);
    EXPECT_LE(pipes.counters().kept, kCqs) << "what is kept is bounded by the CQs, not by the events";

    push(completion(2, 1, 99));  // another client still gets its event
    abi::CompEventRecord c{};
    ASSERT_EQ(read(quick, &c, sizeof c), ssize_t(sizeof c));
    EXPECT_EQ(c.cq_handle, 99u);

    push(completion(1, 1, kCqs));  // the only event of the newest CQ arrives while the socket is full
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

TEST_F(Pipes, AnLcoreLeavesASendThatMayBlockToTheEventThread) {
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

/// A page without content. A thread that accesses the page waits until the test calls give(). A hostile client can
/// use userfaultfd or FUSE to make a system call wait in the same way.
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
    /// Waits until a thread accesses the page.
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

TEST_F(Pipes, AReaderWithoutItsBufferDelaysNoOtherClient) {
    const AbsentPage absent;
    if (absent.page == nullptr) GTEST_SKIP() << "no userfaultfd for accesses of the kernel (needs CAP_SYS_PTRACE)";
    const int channel = pipes.make(1, 1), other = pipes.make(2, 1);
    pipes.signal(1, 1, 1);
    std::thread reader([&] { EXPECT_EQ(read(channel, absent.page, sizeof(abi::CompEventRecord)), 8); });
    absent.await_access();  // the reading thread now holds all locks that read() takes
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

TEST_F(Pipes, EventsOfAClosedReaderOrPipeAreDropped) {
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
