// Tests of the threads that access clients' memory. If an access to the memory of one user does not return, accesses
// to the memory of other users must not wait. A thread must end when no pointer to its worker is left.
#include "apps/rocid/slow_threads.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "apps/rocid/remote_process.hpp"
#include "soon.hpp"

namespace roci::rocid {
namespace {

using namespace std::chrono_literals;

/// The memory of a client. A read returns only after the test has opened the gate.
class Gate : public mem::RemoteProcess {
public:
    explicit Gate(std::shared_ptr<mem::SlowWorker> worker, bool open) : worker_(std::move(worker)), open_(open) {}
    mem::SlowWorker* worker() override { return worker_.get(); }
    bool read(uint64_t, std::byte*, uint64_t) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return open_; });
        return true;
    }
    bool write(uint64_t, const std::byte*, uint64_t) override { return true; }
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

private:
    std::shared_ptr<mem::SlowWorker> worker_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_;
};

/// An access to 64 bytes of a process's memory. The constructor submits it.
struct Access {
    mem::MemoryRegion region;
    mem::SlowRequest request;
    std::byte bytes[64] = {};
    mem::SlowLane* lane = nullptr;
    Access(mem::RemoteProcess& process, uint64_t address) {
        region.length = sizeof bytes;
        region.process = &process;
        region.segments = {{.length = sizeof bytes, .client_address = address}};
        EXPECT_TRUE(mem::add(request, region, 0, bytes, sizeof bytes));
        lane = mem::submit(request, 0);
    }
    bool done() {
        mem::SlowRequest* r;
        if (!lane->done.pop(r)) return false;
        --lane->under_way;
        EXPECT_EQ(r, &request);
        mem::release(request);
        return true;
    }
};

struct Threads : testing::Test {
    pmd::WakeFlag lcore;
    SlowThreads threads{{&lcore}};
};

TEST_F(Threads, AUserHasOneWorkerAsLongAsSomebodyNeedsIt) {
    auto first = threads.of(1);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(threads.of(1), first);
    auto second = threads.of(2);
    EXPECT_NE(second, first);
    EXPECT_EQ(threads.threads(), 2u);
    first.reset();
    EXPECT_TRUE(soon([&] { return threads.threads() == 1; }));
    EXPECT_NE(threads.of(1), nullptr) << "and a new one later";
}

TEST_F(Threads, AUserWhoseMemoryDoesNotAnswerHoldsUpNobodyElse) {
    Gate stuck(threads.of(1), false), quick(threads.of(2), true);
    Access waits(stuck, 0), serves(quick, 0);
    ASSERT_NE(waits.lane, nullptr);
    EXPECT_TRUE(soon([&] { return serves.done(); }));
    EXPECT_TRUE(serves.request.good);
    EXPECT_EQ(serves.region.slow_pending, 0u);
    EXPECT_FALSE(waits.done());
    EXPECT_EQ(waits.region.slow_pending, 1u) << "the region must stay";
    EXPECT_FALSE(threads.drain(10));
    stuck.open();
    EXPECT_TRUE(soon([&] { return waits.done(); }));
    EXPECT_TRUE(threads.drain(10'000));
}

TEST_F(Threads, ASleepingLcoreIsWoken) {
    lcore.sleeping = 1;
    Gate quick(threads.of(2), true);
    Access serves(quick, 0);
    EXPECT_TRUE(lcore.sleeper.sleep(10'000'000'000));
    EXPECT_TRUE(soon([&] { return serves.done(); }));
}

TEST_F(Threads, SoManyUsersAtATime) {
    std::vector<std::shared_ptr<mem::SlowWorker>> all;
    for (uint32_t user = 0; user < mem::SlowWorker::kMost; ++user) ASSERT_NE(all.emplace_back(threads.of(user)), nullptr);
    EXPECT_EQ(threads.of(1000), nullptr);
    all.pop_back();
    EXPECT_TRUE(soon([&] { return threads.of(1000) != nullptr; }));
}

TEST_F(Threads, ReachesAProcess) {
    auto process = ProcMemory::open(getpid(), getuid(), threads.of(1));
    ASSERT_NE(process, nullptr);
    char own[64] = "hello";
    Access reads(*process, uint64_t(uintptr_t(own))), fails(*process, 8);
    mem::SlowRequest* r = nullptr;
    for (int left = 2; left != 0 && soon([&] { return reads.lane->done.pop(r); }); --left) mem::release(*r);
    EXPECT_TRUE(reads.request.good);
    EXPECT_EQ(std::memcmp(reads.bytes, "hello", 5), 0);
    EXPECT_FALSE(fails.request.good) << "not mapped";
}

}  // namespace
}  // namespace roci::rocid
