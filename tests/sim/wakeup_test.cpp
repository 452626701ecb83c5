// Tests the doorbell rule with the real engine. The round in which the engine stops polling a queue runs instruction by
// instruction. In each run, the client posts before another one of these instructions. The engine must not miss the
// request. Similarly, a polling thread goes to sleep before each instruction of the round that completes its request,
// and the engine must wake the thread. The single steps make the test deterministic.
#include "fixture.hpp"

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ROCI_SINGLE_STEPS
#include <ucontext.h>
#include <x86intrin.h>

#include <csignal>
#endif

namespace roci::sim {
namespace {

#ifdef ROCI_SINGLE_STEPS

/// Runs a function and interrupts it before a given instruction. At the interruption it runs another function.
class Interleaver {
public:
    Interleaver() {
        struct sigaction a {};
        a.sa_sigaction = on_step;
        a.sa_flags = SA_SIGINFO;
        sigaction(SIGTRAP, &a, &before_);
    }
    ~Interleaver() { sigaction(SIGTRAP, &before_, nullptr); }
    /// Runs `fn`, and runs `other` before instruction `at` of `fn`. If `fn` has fewer instructions, does not run
    /// `other` and returns false.
    template <class Fn>
    [[nodiscard]] bool run(uint64_t at, const std::function<void()>& other, Fn&& fn) {
        left_ = at;
        other_ = &other;
        __writeeflags(__readeflags() | kTrap);
        fn();
        __writeeflags(__readeflags() & ~kTrap);
        return left_ == 0;
    }

private:
    static constexpr unsigned long long kTrap = 0x100;
    static void on_step(int, siginfo_t*, void* context) {
        if (left_ == 0 || --left_ != 0) return;
        (*other_)();
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<long long>(kTrap);
    }
    static inline uint64_t left_ = 0;
    static inline const std::function<void()>* other_ = nullptr;
    struct sigaction before_ {};
};

struct WakeUp : PairTest {
    WakeUp() { join(); }
    bool watched() const { return qa.sq.shared->idle == 0; }
    void poll_engine() { world.host(0).engine(0).poll(world.now()); }
    /// Executes one WRITE and returns its status. When the function returns, the engine still polls the queue for
    /// some rounds.
    WcStatus once() {
        a.client.post_send(qa, write_);
        return a.wait_status();
    }
    /// Returns the number of rounds without work after which the engine stops polling the queue.
    uint32_t rounds_to_rest() {
        uint32_t n = 0;
        for (; watched(); ++n) poll_engine();
        return n;
    }
    /// Posts before each instruction of the round in which the engine stops polling the queue.
    void post_everywhere(WcStatus expected) {
        ASSERT_EQ(once(), expected);
        const uint32_t rounds = rounds_to_rest();
        ASSERT_GT(rounds, 0u);
        Interleaver interleaver;
        const std::function<void()> post = [&] { a.client.post_send(qa, write_); };
        uint64_t at = 1;
        for (bool within = true; within; ++at) {
            ASSERT_EQ(once(), expected);
            for (uint32_t i = 1; i < rounds; ++i) poll_engine();
            ASSERT_TRUE(watched());
            within = interleaver.run(at, post, [&] { poll_engine(); });
            if (!within) break;
            const auto got = a.wait(1);
            ASSERT_EQ(got.size(), 1u) << "posted before instruction " << at << " of the round: left behind";
            ASSERT_EQ(got[0].status, expected);
        }
        EXPECT_FALSE(watched());
        EXPECT_GT(at, 100u) << "so many instructions a round has at least";
    }
    /// Makes the program go to sleep before each instruction of the round that completes its request.
    void sleep_everywhere(WcStatus expected) {
        engine::Engine& engine = world.host(0).engine(0);
        const uint32_t* word = nullptr;
        const std::function<void()> sleep = [&] { word = a.cq.ring.prepare_sleep(); };
        ASSERT_EQ(once(), expected);
        Interleaver interleaver;
        uint64_t at = 1, slept = 0;
        for (bool within = true; within; ++at) {
            a.cq.ring.shared->sleeping = 0;
            engine.sleepers().clear();
            a.client.post_send(qa, write_);
            within = interleaver.run(at, sleep, [&] { poll_engine(); });
            if (!within) break;
            slept += word != nullptr ? 1 : 0;
            engine.settle_sleepers();
            const bool woken = !engine.sleepers().empty() && engine.sleepers()[0].word == word;
            ASSERT_TRUE(word == nullptr || woken) << "fell asleep before instruction " << at << " of the round: never woken";
            const auto got = a.wait(1);
            ASSERT_EQ(got.size(), 1u);
            ASSERT_EQ(got[0].status, expected);
        }
        EXPECT_GT(slept, 100u) << "so many instructions stand before the entry";
    }
    SendWr write_ = a.rdma(WrOpcode::rdma_write, 1, 0, 64, b.mr.address(), b.mr.rkey);
};

TEST_F(WakeUp, WorkPostedWhileTheQueuePairGoesToRestIsSent) { post_everywhere(WcStatus::success); }

TEST_F(WakeUp, AQueuePairAtRestWakesNobody) {
    ASSERT_EQ(once(), WcStatus::success);
    rounds_to_rest();
    EXPECT_EQ(world.host(0).engine(0).next_deadline(world.now()), kNever);
}

TEST_F(WakeUp, WorkPostedToAQueuePairInErrorIsFlushed) {
    a.client.to_state(qa, IBV_QPS_ERR);
    post_everywhere(WcStatus::wr_flush_err);
}

TEST_F(WakeUp, AProgramThatFallsAsleepWhileItsRequestCompletesIsWoken) {
    a.client.to_state(qa, IBV_QPS_ERR);
    sleep_everywhere(WcStatus::wr_flush_err);
}

#else
TEST(WakeUp, EveryInstruction) {
    GTEST_SKIP() << "single steps: only on Linux for x86-64, and not through the run-time of a sanitizer";
}
#endif

}  // namespace
}  // namespace roci::sim
