// Tests of the lcore loop with a fake engine. The loop must sleep only if there is no work. Every source of work must
// wake it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "base/time_source.hpp"
#include "fake_engine.hpp"
#include "io/event.hpp"
#include "pmd_glue/lcore_loop.hpp"

namespace roci::pmd {
namespace {

using namespace std::chrono_literals;

struct Lcore : testing::Test {
    FakeEngine engine;
    RealTime time;
    uint32_t sleeping = 0;
    WakeFlag events;
    Epoch epoch;
    IdlePolicy policy{.sleeps = true, .spin = 1000, .max_sleep = 3600'000'000'000, .share_cpu = true};
    std::unique_ptr<LcoreLoop<FakeEngine, RealTime>> loop;
    std::thread thread;

    void make() {
        loop = std::make_unique<LcoreLoop<FakeEngine, RealTime>>(engine, time, policy, sleeping, events, epoch);
        loop->set_peers({&loop->wake_flag(), &events});
    }
    void start() {
        if (loop == nullptr) make();
        thread = std::thread([this] { loop->run(); });
    }
    /// Submits one command and waits for its result, as the conductor (rocid's control thread) does.
    int execute() {
        engine::AddQp c;
        loop->commands().wait(loop->commands().submit(&c));
        return c.error;
    }
    void fence() {
        const Epoch::Number now = epoch.advance();
        loop->commands().begin_fence(now);
        loop->commands().end_fence(now);
    }
    bool asleep() {
        return soon([&] { return std::atomic_ref(sleeping).load() == 1 && loop->counters().sleeps.load() > 0; });
    }
    void stop() {
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
    void TearDown() override { stop(); }
};

TEST_F(Lcore, SleepsWithoutWorkAndStopsFromSleep) {
    start();
    ASSERT_TRUE(asleep());
    std::this_thread::sleep_for(20ms);
    const uint32_t polls = engine.polls;
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(engine.polls, polls) << "a sleeping lcore does not poll";
}

/// A Waker that simulates the interrupts of a NIC.
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
    loop = std::make_unique<LcoreLoop<FakeEngine, RealTime>>(engine, time, policy, sleeping, events, epoch);
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
    loop->pace().yielded(1'000'000'000, 1);  // reports a sched_yield() that took a second, as beside a busy thread
    start();
    ASSERT_TRUE(asleep());
    EXPECT_FALSE(engine.lingers) << "it does not wait until the engine stops watching queues by itself";
    EXPECT_EQ(execute(), 42) << "it wakes for a command";
}

TEST_F(Lcore, WakesAProgramThatSleepsWhileItPolls) {
    uint32_t word = 1;
    rings::CqLane lane;
    lane.lies = 3;
    make();
    std::thread program([&] {
        while (std::atomic_ref(word).load() == 1) syscall(SYS_futex, &word, FUTEX_WAIT, 1, nullptr, nullptr, 0);
    });
    std::atomic_ref(word).store(0);  // an engine clears the word before it adds the sleeping program to the list
    engine.sleeping_programs.push_back({&word, &lane});
    start();
    program.join();
    EXPECT_TRUE(soon([&] { return loop->counters().sleeps.load() > 0; }));
    stop();
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
    for (uint32_t i = 1; i <= 2000; ++i) {  // rings the doorbell as a client does (abi/client_rings.hpp)
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
    ASSERT_EQ(fcntl(wake, F_SETFL, 0), 0);  // makes the shared file description blocking
    const uint64_t most = ~uint64_t{0} - 1;
    ASSERT_EQ(write(wake, &most, sizeof most), ssize_t(sizeof most));
    uint64_t v = 0;
    ASSERT_EQ(read(wake, &v, sizeof v), ssize_t(sizeof v));
    EXPECT_EQ(execute(), 42) << "the lcore still answers";
    close(wake);
}

TEST_F(Lcore, ACommandWakesItAndComesBackDone) {
    start();
    for (int i = 0; i < 100; ++i) {
        if (i % 10 == 0) {
            ASSERT_TRUE(asleep());
        }
        ASSERT_EQ(execute(), 42);
    }
    EXPECT_EQ(loop->counters().commands.load(), 100u);
}

TEST_F(Lcore, AQuietCommandIsExecutedWithoutWakingASleeper) {
    start();
    ASSERT_TRUE(asleep());
    engine::QuerySrq query{};
    ASSERT_TRUE(soon([&] { return loop->execute_asleep(&query); }));
    EXPECT_EQ(query.error, 42);
    const uint32_t polls = engine.polls;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(loop->execute_asleep(&query));
    EXPECT_EQ(engine.polls, polls);
    EXPECT_EQ(engine.executed_asleep, 101u);
    engine::AddQp other{};
    EXPECT_FALSE(loop->execute_asleep(&other));
    EXPECT_EQ(execute(), 42) << "other commands wake it";
    EXPECT_GT(engine.polls, polls);
}

TEST_F(Lcore, AnAwakeLcoreLendsNothing) {
    policy.sleeps = false;
    start();
    engine::QuerySrq query{};
    for (int i = 0; i < 1000; ++i) ASSERT_FALSE(loop->execute_asleep(&query));
    EXPECT_EQ(execute(), 42);
    EXPECT_EQ(engine.executed_asleep, 0u);
}

TEST_F(Lcore, ASleeperThatKeepsReferencesLendsNothing) {
    engine.keeps = true;
    start();
    ASSERT_TRUE(asleep());
    engine::QuerySrq query{};
    for (int i = 0; i < 1000; ++i) ASSERT_FALSE(loop->execute_asleep(&query));
}

TEST_F(Lcore, OnlyOneThreadUsesTheEngineAndNoDoorbellIsMissed) {
    start();
    std::atomic<bool> ends{false};
    std::thread client([&] {
        for (uint32_t n = 1; !ends; ++n) {
            engine.doorbell = 1;
            std::atomic_thread_fence(std::memory_order_seq_cst);
            if (std::atomic_ref(sleeping).load() != 0) loop->sleeper().wake();
            EXPECT_TRUE(soon([&] { return engine.served.load() >= n; })) << "doorbell " << n << " was missed";
        }
    });
    EXPECT_TRUE(soon([&] { return engine.served.load() >= 1; })) << "the client's thread runs before the loop begins";
    uint32_t asleep_count = 0, awake_count = 0;
    for (int i = 0; i < 200'000 && (i < 2'000 || asleep_count < 100); ++i) {
        engine::QuerySrq query{};
        if (loop->execute_asleep(&query)) {
            ++asleep_count;
        } else {
            loop->commands().wait(loop->commands().submit(&query));
            ++awake_count;
        }
        ASSERT_EQ(query.error, 42);
    }
    ends = true;
    client.join();
    EXPECT_EQ(engine.executed, asleep_count + awake_count);
    EXPECT_EQ(engine.executed_asleep, asleep_count);
    EXPECT_GE(engine.served, 1u);
}

TEST_F(Lcore, ManyCommandsAreSubmittedAndThenWaitedForOnce) {
    make();
    std::array<engine::AddQp, engine::CommandRing::kSize> c;
    engine::Ticket last = 0;
    for (auto& one : c) ASSERT_TRUE(loop->commands().try_submit(&one, last)) << "although no lcore runs yet";
    EXPECT_FALSE(loop->commands().try_submit(&c[0], last)) << "the ring is full";
    EXPECT_EQ(c[0].error, 0);
    start();
    loop->commands().wait(last);
    for (auto& one : c) EXPECT_EQ(one.error, 42);
    EXPECT_EQ(engine.executed, c.size());
}

TEST_F(Lcore, AFullRingIsWaitedFor) {
    start();
    constexpr uint32_t kMany = 2000;
    std::vector<engine::AddQp> c(kMany);
    engine::Ticket last = 0;
    for (auto& one : c) last = loop->commands().submit(&one);
    loop->commands().wait(last);
    EXPECT_EQ(engine.executed, kMany);
    for (auto& one : c) ASSERT_EQ(one.error, 42);
}

TEST_F(Lcore, ARoundExecutesFourCommands) {
    make();
    std::array<engine::AddQp, 9> c;
    std::vector<uint32_t> rounds;
    engine.in_command = [&] { rounds.push_back(engine.polls); };
    engine::Ticket last = 0;
    for (auto& one : c) ASSERT_TRUE(loop->commands().try_submit(&one, last));
    start();
    loop->commands().wait(last);
    EXPECT_EQ(rounds, (std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1, 2}));
}

TEST_F(Lcore, AWholeRoundPassesBetweenTwoBarriers) {
    start();
    for (int i = 0; i < 200; ++i) {
        uint32_t at[2];
        for (uint32_t& n : at) {
            loop->commands().wait(loop->commands().submit(engine::Barrier{}));
            n = engine.polls_at_command;
        }
        ASSERT_GT(at[1], at[0]) << "the engine has polled";
    }
}

TEST_F(Lcore, CommandsThatWaitWhenItStopsAreExecutedAndLaterOnesRefused) {
    make();
    std::array<engine::AddQp, 20> c;
    engine::Ticket last = 0;
    for (auto& one : c) ASSERT_TRUE(loop->commands().try_submit(&one, last));
    loop->stop();
    start();
    thread.join();
    loop->commands().wait(last);
    for (auto& one : c) EXPECT_EQ(one.error, 42);
    EXPECT_EQ(engine.executed, c.size());
    EXPECT_EQ(execute(), ESHUTDOWN);
    std::vector<engine::AddQp> more(3 * engine::CommandRing::kSize);
    for (auto& one : more) last = loop->commands().submit(&one);  // submit() must not wait for a free slot
    loop->commands().wait(last);
    for (auto& one : more) ASSERT_EQ(one.error, ESHUTDOWN);
    EXPECT_EQ(engine.executed, c.size());
    fence();  // the fence must not wait for the stopped lcore
}

TEST_F(Lcore, NobodyWaitsForEverForAnLcoreThatStopsMeanwhile) {
    for (int i = 0; i < 50; ++i) {
        loop.reset();
        engine.executed = 0;
        start();
        std::thread stopper([&] { loop->stop(); });
        uint32_t executed = 0;
        for (int n = 0; n < 100; ++n) {
            const int error = execute();
            ASSERT_TRUE(error == 42 || error == ESHUTDOWN) << error;
            executed += error == 42;
            fence();
        }
        stopper.join();
        thread.join();
        ASSERT_EQ(engine.executed, executed);
    }
}

TEST_F(Lcore, AFenceDoesNotWakeASleeper) {
    start();
    ASSERT_TRUE(asleep());
    ASSERT_TRUE(soon([&] { return loop->commands().reader.passed(~Epoch::Number{0}); })) << "it rests";
    const uint32_t polls = engine.polls;
    for (int i = 0; i < 100; ++i) fence();
    EXPECT_EQ(engine.polls, polls);
    const uint32_t before = engine.lets_go;
    execute();
    EXPECT_GT(engine.lets_go, before) << "when it wakes it gives up what it kept before the fence";
}

TEST_F(Lcore, AFenceWakesASleeperThatKeepsReferences) {
    engine.keeps = true;
    start();
    for (int i = 0; i < 50; ++i) {
        if (i % 5 == 0) {
            ASSERT_TRUE(asleep());
        }
        const uint32_t before = engine.lets_go;
        fence();
        ASSERT_GT(engine.lets_go, before);
    }
}

TEST_F(Lcore, AFenceOfABusyLcoreLastsUntilItsNextRound) {
    policy.sleeps = false;
    start();
    execute();  // returns when the loop runs
    for (int i = 0; i < 1000; ++i) {
        const uint32_t before = engine.lets_go;
        fence();
        ASSERT_EQ(engine.lets_go, before + 1);
    }
}

TEST_F(Lcore, WakesForTheNextDeadlineByItself) {
    start();
    ASSERT_TRUE(asleep());
    engine.deadline = time.now() + 20'000'000;
    execute();  // after a command the loop reads the deadline again
    EXPECT_TRUE(soon([&] { return engine.served.load() == 1; }));
}

TEST_F(Lcore, TellsASleepingEventThread) {
    start();
    events.sleeping = 1;
    engine.event_wanted = true;
    execute();
    EXPECT_TRUE(events.sleeper.sleep(5'000'000'000));
}

TEST_F(Lcore, WakesAnEngineThatFramesWereHandedTo) {
    start();
    events.sleeping = 1;  // the test takes the role of engine 1
    engine.wake_mask = 1u << 1;
    execute();
    EXPECT_TRUE(events.sleeper.sleep(5'000'000'000));
}

}  // namespace
}  // namespace roci::pmd
