// The lcore loop with a fake engine: it sleeps only without work, and every source of work wakes it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "io/event.hpp"
#include "pmd_glue/lcore_loop.hpp"
#include "pmd_glue/time_source.hpp"

namespace roci::pmd {
namespace {

using namespace std::chrono_literals;

struct RealTime final : TimeSource {
    Nanos now() const override { return Nanos(std::chrono::steady_clock::now().time_since_epoch().count()); }
};

struct FakeEngine {
    std::atomic<uint32_t> doorbell{0}, served{0}, polls{0};
    std::atomic<Nanos> deadline{kNever};
    std::atomic<bool> event_wanted{false};
    std::atomic<uint32_t> wake_mask{0};
    io::EventRing ring{64};

    bool poll(Nanos now) {
        polls.fetch_add(1);
        if (event_wanted.exchange(false)) return ring.push({});
        if (now >= deadline.load()) {
            deadline = kNever;
            served.fetch_add(1);
            return true;
        }
        if (doorbell.exchange(0) == 0) return false;
        served.fetch_add(1);
        return true;
    }
    void execute(engine::Command& c, Nanos) { c.error = 42; }
    Nanos next_deadline(Nanos) const { return deadline.load(); }
    bool doorbell_pending() const { return doorbell.load() != 0; }
    std::vector<rings::Sleeper> sleeping_programs;
    std::atomic<bool> lingers{true};
    std::vector<rings::Sleeper>& sleepers() { return sleeping_programs; }
    void settle_sleepers() {}
    std::atomic<uint32_t> naps{0};  ///< that it was told of
    void slept(Nanos from, Nanos to) { naps += from <= to ? 1u : 0u; }
    void stop_lingering() { lingers = false; }
    uint32_t take_wake_mask() { return wake_mask.exchange(0); }
    io::EventRing& events() { return ring; }
};

template <class Condition>
bool soon(Condition c) {
    for (int i = 0; i < 5000; ++i) {
        if (c()) return true;
        std::this_thread::sleep_for(1ms);
    }
    return false;
}

struct Lcore : testing::Test {
    FakeEngine engine;
    RealTime time;
    uint32_t sleeping = 0;
    WakeFlag events;
    IdlePolicy policy{.sleeps = true, .spin = 1000, .max_sleep = 3600'000'000'000, .share_cpu = true};
    std::unique_ptr<LcoreLoop<FakeEngine, RealTime>> loop;
    std::thread thread;

    void make() {
        loop = std::make_unique<LcoreLoop<FakeEngine, RealTime>>(engine, time, policy, sleeping, events);
        loop->set_peers({&loop->wake_flag(), &events});
    }
    void start() {
        if (loop == nullptr) make();
        thread = std::thread([this] { loop->run(); });
    }
    bool asleep() {
        return soon([&] { return std::atomic_ref(sleeping).load() == 1 && loop->counters().sleeps.load() > 0; });
    }
    void TearDown() override {
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
};

TEST_F(Lcore, SleepsWithoutWorkAndStopsFromSleep) {
    start();
    ASSERT_TRUE(asleep());
    std::this_thread::sleep_for(20ms);
    const uint32_t polls = engine.polls;
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(engine.polls, polls) << "a sleeping lcore does not poll";
}

/// The interrupts of a NIC.
struct Interrupts final : Waker {
    std::atomic<bool> come{true};
    std::atomic<int> timed_out{0}, woken{0};
    void before_sleep() override {}
    void after_sleep(Slept how) override {
        if (how == Slept::until_time_was_up) ++timed_out;
        if (how == Slept::until_woken) ++woken;
    }
    bool wakes() const override { return come; }
};

TEST_F(Lcore, SleepsShortWhileAWakerDoesNotWake) {
    Interrupts interrupts;
    loop = std::make_unique<LcoreLoop<FakeEngine, RealTime>>(engine, time, policy, sleeping, events);
    loop->set_wakers({&interrupts});
    thread = std::thread([this] { loop->run(); });
    ASSERT_TRUE(asleep());
    EXPECT_EQ(interrupts.timed_out, 0) << "it may sleep for an hour";
    interrupts.come = false;
    loop->wake_flag().sleeper.wake();
    EXPECT_TRUE(soon([&] { return interrupts.timed_out >= 5; }));
    EXPECT_GE(interrupts.woken, 1);
    loop->stop();
    thread.join();
}

TEST_F(Lcore, WhatHasWokenItIsKnown) {
    const int loud = eventfd(0, EFD_NONBLOCK), quiet = eventfd(0, EFD_NONBLOCK);
    std::atomic<bool> heard_loud{false}, heard_quiet{false};
    start();
    ASSERT_TRUE(loop->sleeper().watch(loud, &heard_loud));
    ASSERT_TRUE(loop->sleeper().watch(quiet, &heard_quiet));
    ASSERT_TRUE(asleep());
    eventfd_write(loud, 1);
    EXPECT_TRUE(soon([&] { return heard_loud.load(); }));
    EXPECT_FALSE(heard_quiet);
    close(loud);
    close(quiet);
}

TEST_F(Lcore, WhereABusyProgramWantsItsCpuItSleepsAtOnce) {
    policy.spin = 3600'000'000'000;
    make();
    loop->pace().yielded(1'000'000'000, 1);  // the yield before took a second
    start();
    ASSERT_TRUE(asleep());
    EXPECT_FALSE(engine.lingers) << "it does not wait until the engine stops watching queues by itself";
    engine::Command c;
    loop->execute(c);
    EXPECT_EQ(c.error, 42) << "it wakes for a command";
}

TEST_F(Lcore, WakesAProgramThatSleepsWhileItPolls) {
    uint32_t word = 1;
    rings::CqLane lane;
    lane.lies = 3;
    make();
    std::thread program([&] {
        while (std::atomic_ref(word).load() == 1) syscall(SYS_futex, &word, FUTEX_WAIT, 1, nullptr, nullptr, 0);
    });
    std::atomic_ref(word).store(0);  // as the engine does, before it lists the sleeper
    engine.sleeping_programs.push_back({&word, &lane});
    start();
    program.join();
    EXPECT_TRUE(soon([&] { return loop->counters().sleeps.load() > 0; }));
    EXPECT_TRUE(lane.lies == 0 || lane.lies == 4) << "4: the program had not fallen asleep yet";
    EXPECT_TRUE(engine.sleeping_programs.empty());
}

TEST_F(Lcore, SpinNeverSleeps) {
    policy.sleeps = false;
    make();
    loop->pace().yielded(1'000'000'000, 1);
    start();
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(loop->counters().sleeps.load(), 0u);
    EXPECT_EQ(std::atomic_ref(sleeping).load(), 0u);
}

TEST_F(Lcore, NoDoorbellIsMissed) {
    start();
    const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_TRUE(loop->sleeper().watch(wake));
    const uint64_t one = 1;
    for (uint32_t i = 1; i <= 2000; ++i) {  // the client's side of the rule, as in abi/client_rings.hpp
        engine.doorbell.store(1, std::memory_order_seq_cst);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (std::atomic_ref(sleeping).load(std::memory_order_relaxed) != 0) {
            ASSERT_EQ(write(wake, &one, sizeof one), ssize_t(sizeof one));
        }
        ASSERT_TRUE(soon([&] { return engine.served.load() == i; })) << "doorbell " << i << " was missed";
    }
    EXPECT_GT(loop->counters().sleeps.load(), 1u);
    EXPECT_GE(engine.naps.load(), 1u) << "the engine is told";
    loop->sleeper().forget(wake);
    close(wake);
}

TEST_F(Lcore, AWakeDescriptorThatAClientDrainedOrMadeBlockingHurtsNobody) {
    start();
    const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_TRUE(loop->sleeper().watch(wake));
    ASSERT_EQ(fcntl(wake, F_SETFL, 0), 0);  // the shared description is blocking now
    const uint64_t most = ~uint64_t{0} - 1;
    ASSERT_EQ(write(wake, &most, sizeof most), ssize_t(sizeof most));
    uint64_t v = 0;
    ASSERT_EQ(read(wake, &v, sizeof v), ssize_t(sizeof v));
    engine::Command c;
    loop->execute(c);  // the lcore still answers
    EXPECT_EQ(c.error, 42);
    close(wake);
}

TEST_F(Lcore, ACommandWakesItAndComesBackDone) {
    start();
    for (int i = 0; i < 100; ++i) {
        if (i % 10 == 0) {
            ASSERT_TRUE(asleep());
        }
        engine::Command c;
        loop->execute(c);
        ASSERT_EQ(c.error, 42);
        ASSERT_TRUE(c.done.load());
    }
    EXPECT_EQ(loop->counters().commands.load(), 100u);
}

TEST_F(Lcore, ACommandIsBegunBeforeItIsWaitedFor) {
    make();
    engine::Command c;
    loop->begin(c);  // returns although no lcore runs yet
    EXPECT_FALSE(c.done.load());
    start();
    loop->finish(c);
    EXPECT_EQ(c.error, 42);
    EXPECT_TRUE(c.done.load());
}

TEST_F(Lcore, WakesForTheNextDeadlineByItself) {
    start();
    ASSERT_TRUE(asleep());
    engine.deadline = time.now() + 20'000'000;
    engine::Command c;
    loop->execute(c);  // so that it looks at its deadline again
    EXPECT_TRUE(soon([&] { return engine.served.load() == 1; }));
}

TEST_F(Lcore, TellsASleepingEventThread) {
    start();
    events.sleeping = 1;
    engine.event_wanted = true;
    engine::Command c;
    loop->execute(c);
    EXPECT_TRUE(events.sleeper.sleep(5'000'000'000));
}

TEST_F(Lcore, WakesAnEngineThatFramesWereHandedTo) {
    start();
    events.sleeping = 1;  // stands for engine 1
    engine.wake_mask = 1u << 1;
    engine::Command c;
    loop->execute(c);
    EXPECT_TRUE(events.sleeper.sleep(5'000'000'000));
}

}  // namespace
}  // namespace roci::pmd
