// Tests of the limit of a flow (qp/limit.hpp), which is the condition that limits the rate of the flow at a given moment. The
// tests read the limit by the command QueryQp.
#include "engine/command.hpp"
#include "fixture.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

using qp::Limit;

struct LimitTest : PairTest {
    static constexpr uint32_t kWindow = 8;
    static WorldOptions small_window(cc::Policy policy = cc::Policy::fixed_window) {
        WorldOptions o;
        o.engine.max_inflight = kWindow;
        o.congestion = policy;
        return o;
    }
    explicit LimitTest(const WorldOptions& o = small_window()) : PairTest(o) {}

    qp::Snapshot look(uint32_t host, const Qp& qp) {
        qp::Snapshot out;
        qp::Journal journal;
        engine::QueryQp query{world.host(host).shared().qps.find(qp.qpn), &out, &journal};
        world.host(host).execute(0, query);
        return out;
    }
    Limit limit() { return look(0, qa).limit; }
    const qp::Qp& engine_qp() { return *world.host(0).shared().qps.find(qa.qpn); }
    uint32_t in_flight() { return engine_qp().requester.window.in_flight(); }
    void post_writes(uint32_t count, uint32_t length) {
        for (uint32_t i = 0; i < count; ++i)
            ASSERT_TRUE(a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, i, 0, length, b.mr.address(), b.mr.rkey)));
    }
    void TearDown() override {
        world.run_until([&] { return engine_qp().requester.queue.empty(); });
        PairTest::TearDown();
    }
};

TEST_F(LimitTest, NothingCanBeSentBeforeRts) { EXPECT_EQ(limit(), Limit::state); }

TEST_F(LimitTest, TheProgramHasPostedNothing) {
    join();
    EXPECT_EQ(limit(), Limit::program);
}

TEST_F(LimitTest, PostedAndNotYetServed) {
    join();
    post_writes(1, 64);
    EXPECT_EQ(limit(), Limit::lcore);
}

TEST_F(LimitTest, AllIsSentAndThePeerHasNotAnswered) {
    join();
    post_writes(1, 64);
    ASSERT_TRUE(world.run_until([&] { return in_flight() == 1; }));
    EXPECT_EQ(limit(), Limit::peer);
}

TEST_F(LimitTest, TheWindowIsFull) {
    join();
    post_writes(4, 8 * 1024);
    ASSERT_TRUE(world.run_until([&] { return in_flight() == kWindow; }));
    const qp::Snapshot now = look(0, qa);
    EXPECT_EQ(now.limit, Limit::window);
    EXPECT_EQ(now.open_window, kWindow);
}

TEST_F(LimitTest, ThePeerHasNoReceive) {
    join();
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 64)));
    ASSERT_TRUE(world.run_until([&] { return engine_qp().counters.events.rnr_nak_received != 0; }));
    EXPECT_EQ(limit(), Limit::credits);
    ASSERT_TRUE(b.client.post_recv(qb, 1, {b.sge(0, 4096)}));
}

TEST_F(LimitTest, AMessageBeyondTheCreditsWaits) {
    join();
    ASSERT_TRUE(b.client.post_recv(qb, 1, {b.sge(0, 4096)}));
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 64)));
    ASSERT_EQ(a.wait_status(), WcStatus::success);  // the ACK of this request contains zero credits
    for (uint32_t i = 2; i < 5; ++i) ASSERT_TRUE(a.client.post_send(qa, a.send(i, 0, 64)));
    ASSERT_TRUE(world.run_until([&] { return engine_qp().requester.credit_probe; }));
    ASSERT_EQ(engine_qp().counters.events.rnr_nak_received, 0u) << "the probe is on its way";
    EXPECT_EQ(limit(), Limit::credits);
    for (uint32_t i = 2; i < 5; ++i) ASSERT_TRUE(b.client.post_recv(qb, i, {b.sge(0, 4096)}));
}

TEST_F(LimitTest, MoreReadsThanMaxRdAtomicWait) {
    join({.max_rd_atomic = 1});
    for (uint32_t i = 0; i < 2; ++i)
        ASSERT_TRUE(a.client.post_send(qa, a.rdma(WrOpcode::rdma_read, i, 0, 64, b.mr.address(), b.mr.rkey)));
    ASSERT_TRUE(world.run_until([&] { return engine_qp().requester.queue.reads_outstanding() == 1; }));
    EXPECT_EQ(limit(), Limit::reads);
}

TEST_F(LimitTest, ThePeerIsSilent) {
    join();
    world.net().set_script([](const Sent&) { return Verdict{Verdict::drop}; });
    post_writes(1, 64);
    ASSERT_TRUE(world.run_until([&] { return engine_qp().counters.events.timeouts != 0; }));
    EXPECT_EQ(limit(), Limit::loss);
    world.net().set_script({});
}

struct AdaptiveLimitTest : LimitTest {
    AdaptiveLimitTest() : LimitTest(small_window(cc::Policy::delay)) {}
};

TEST_F(AdaptiveLimitTest, CongestionControlHoldsBack) {
    join();
    post_writes(1, 8 * 1024);
    ASSERT_TRUE(world.run_until([&] { return in_flight() != 0; }));
    const qp::Snapshot now = look(0, qa);
    EXPECT_EQ(now.limit, Limit::congestion);
    EXPECT_LT(now.open_window, kWindow);
}

TEST_F(LimitTest, HabitsAreThoseOfTheLastRequests) {
    join();
    EXPECT_EQ(look(0, qa).habits.looked, 0u);
    for (uint32_t i = 0; i < 40; ++i) {
        SendWr wr = a.rdma(WrOpcode::rdma_write, i, 1, 1024, b.mr.address(), b.mr.rkey);
        wr.flags = i % 2 == 0 ? uint8_t(abi::kSendSignaled) : uint8_t(0);
        ASSERT_TRUE(a.client.post_send(qa, wr));
        ASSERT_TRUE(world.run_until(
            [&] { return engine_qp().requester.queue.empty() && engine_qp().counters.events.tx_messages == i + 1; }));
    }
    const qp::Habits h = look(0, qa).habits;
    EXPECT_EQ(h.looked, qp::Habits::kMost);
    EXPECT_EQ(h.signaled, qp::Habits::kMost / 2);
    EXPECT_EQ(h.unaligned, qp::Habits::kMost) << "they begin one byte behind a page";
    EXPECT_EQ(a.poll_all().size(), 20u);
}

TEST_F(LimitTest, AnEngineCountsWhereItsTimeGoes) {
    using engine::Counter;
    const auto count = [&](Counter c) { return world.host(0).engine(0).counters().get(c); };
    join();
    world.run_for(3'000'000);
    world.host(0).engine(0).poll(world.now());
    const uint64_t lost = count(Counter::lost_ns), busy = count(Counter::busy_ns);
    EXPECT_GE(lost, 2'000'000u) << "nothing to do: the world jumps to the next event, as if the lcore had not run";
    post_writes(1, 64);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_GT(count(Counter::busy_ns), busy);
    EXPECT_LT(count(Counter::busy_ns), busy + 1'000'000);
    EXPECT_EQ(count(Counter::lost_ns), lost);
    const uint64_t sleeps = count(Counter::sleeps), asleep = count(Counter::asleep_ns);
    world.host(0).engine(0).slept(world.now() - 5000, world.now());
    EXPECT_EQ(count(Counter::sleeps), sleeps + 1);
    EXPECT_EQ(count(Counter::asleep_ns), asleep + 5000);
}

TEST(Limits, HaveWords) {
    for (const qp::LimitText& l : qp::kLimits) EXPECT_GT(std::strlen(l.text), 20u) << l.name;
}

}  // namespace
}  // namespace roci::sim
