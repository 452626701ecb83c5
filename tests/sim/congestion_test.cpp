// Tests of congestion marks, CNPs, rates and windows between two hosts.
#include "fixture.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

struct Congestion : PairTest {
    explicit Congestion(cc::Policy p = cc::Policy::adaptive) : PairTest({.traffic_class = 2, .congestion = p}) {}
    Faults faults;
    void mark(double share) {
        faults.mark = share;
        world.net().set_faults(faults);
    }
    void write(uint32_t bytes) {
        a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, bytes, b.mr.address(), b.mr.rkey));
        ASSERT_EQ(a.wait_status(), WcStatus::success);
    }
    std::vector<Nanos> notifications() {
        std::vector<Nanos> out;
        for (const Sent& s : world.net().capture())
            if (s.parsed && s.packet.opcode == wire::kCnpOpcode) out.push_back(s.when);
        return out;
    }
    const qp::Qp& inside() { return *world.host(0).shared().qps.find(qa.qpn); }
    uint64_t count(uint32_t host, engine::Counter c) { return world.host(host).counter(c); }
};

TEST_F(Congestion, TheReceiverOfMarkedFramesNotifiesAtMostOncePerInterval) {
    join();
    mark(1);
    for (int i = 0; i < 4; ++i) write(1 << 20);
    const auto at = notifications();
    ASSERT_GT(at.size(), 2u);
    EXPECT_GT(count(1, engine::Counter::cnp_sent), 0u);
    EXPECT_EQ(count(0, engine::Counter::cnp_received), count(1, engine::Counter::cnp_sent));
    std::map<uint32_t, Nanos> last;
    for (const Sent& s : world.net().capture()) {
        if (!s.parsed || s.packet.opcode != wire::kCnpOpcode) continue;
        EXPECT_TRUE(s.packet.becn);
        const auto [before, first] = last.try_emplace(s.from, s.when);
        EXPECT_TRUE(first || s.when - before->second + 1000 >= 50'000u) << s.when - before->second;
        before->second = s.when;
    }
}

struct ByRate : Congestion {
    ByRate() : Congestion(cc::Policy::dcqcn) {}
};

TEST_F(ByRate, ANotifiedSenderHasARateAndLosesItAgain) {
    join();
    mark(1);
    write(1 << 20);
    EXPECT_NE(inside().adaptation.rate, 0u);
    mark(0);
    world.run_for(100'000'000);
    write(4096);
    EXPECT_EQ(cc::rate(inside().requester.congestion, inside().adaptation), 0u);
}

/// The engine must not send the packets of a QP faster than the rate of the QP's controller.
TEST_F(ByRate, PacketsLeaveAtTheRate) {
    join();
    mark(1);
    for (int i = 0; i < 4; ++i) write(1 << 20);
    const uint32_t before = inside().adaptation.rate;
    const uint64_t sent = inside().counters.tx_bytes;
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 1 << 20, b.mr.address(), b.mr.rkey));
    constexpr Nanos kTime = 2'000'000;
    world.run_for(kTime);
    const uint64_t most = uint64_t{std::max(before, inside().adaptation.before)} * kTime / 1'000'000 + (64 << 10);
    EXPECT_GT(inside().counters.tx_bytes, sent);
    EXPECT_LT(inside().counters.tx_bytes - sent, most);
    EXPECT_LT(most, 1u << 20) << "the rate must matter";
}

TEST_F(Congestion, AfterSilenceTheWindowIsSmallAndGrowsAgain) {
    join();
    for (int i = 0; i < 4; ++i) write(1 << 20);
    EXPECT_GT(cc::packets(inside().requester.congestion), 4u);
    world.net().blackout(world.host(0).endpoint(0), world.now() + 5'000'000);
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 1 << 20, b.mr.address(), b.mr.rkey));
    world.run_for(4'900'000);
    EXPECT_LE(cc::packets(inside().requester.congestion), cc::kWindowAfterTimeout);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    for (int i = 0; i < 4; ++i) write(1 << 20);
    EXPECT_GT(cc::packets(inside().requester.congestion), 4u);
}

TEST_F(Congestion, ANotifiedWindowIsSmallerAndGrowsAgain) {
    join();
    for (int i = 0; i < 4; ++i) write(1 << 20);
    const uint32_t before = inside().requester.congestion.window;
    mark(1);
    for (int i = 0; i < 4; ++i) write(1 << 20);
    const uint32_t marked = inside().requester.congestion.window;
    EXPECT_LT(marked, before);
    mark(0);
    for (int i = 0; i < 8; ++i) write(1 << 20);
    EXPECT_GT(inside().requester.congestion.window, marked);
    EXPECT_EQ(cc::rate(inside().requester.congestion, inside().adaptation), 0u);
}

/// About 30 packets are under way on the link. While lost packets are repaired, the window must allow at least 30
/// more packets. Otherwise the link becomes idle.
TEST_F(Congestion, RandomLossLeavesPacketsForTheTimeOfRepairs) {
    join();
    for (int i = 0; i < 8; ++i) write(1 << 20);
    faults.drop = 0.01;
    world.net().set_faults(faults);
    uint64_t sum = 0;
    constexpr uint32_t kWrites = 64;
    for (uint32_t i = 0; i < kWrites; ++i) {
        write(1 << 20);
        sum += cc::packets(inside().requester.congestion);
    }
    EXPECT_GT(sum / kWrites, 60u);
}

TEST_F(Congestion, WithoutMarksNothingIsNotified) {
    join();
    write(1 << 20);
    EXPECT_TRUE(notifications().empty());
    EXPECT_EQ(cc::rate(inside().requester.congestion, inside().adaptation), 0u);
}

TEST_F(Congestion, ANewConnectionBeginsWithASmallWindow) {
    join();
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 1 << 20, b.mr.address(), b.mr.rkey));
    world.run_for(1500);  // no ACK can arrive in this time
    EXPECT_EQ(inside().requester.window.in_flight(), 2u);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

struct FixedWindow : Congestion {
    FixedWindow() : Congestion(cc::Policy::fixed_window) {}
};

TEST_F(FixedWindow, IgnoresNotifications) {
    join();
    mark(1);
    for (int i = 0; i < 4; ++i) write(1 << 20);
    EXPECT_FALSE(notifications().empty());
    EXPECT_EQ(cc::not_before(inside().requester.congestion), 0u);
    EXPECT_EQ(inside().requester.congestion.window, cc::kFullWindow);
}

struct UnreliablePair : PairTest {
    UnreliablePair() : PairTest({.traffic_class = 2, .congestion = cc::Policy::adaptive}, {.type = IBV_QPT_UC}) {}
};

TEST_F(UnreliablePair, IsNeitherNotifiedNorHeldBack) {
    join();
    Faults f;
    f.mark = 1;
    world.net().set_faults(f);
    a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, 1, 0, 1 << 20, b.mr.address(), b.mr.rkey));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(1'000'000);
    EXPECT_GT(world.host(1).counter(engine::Counter::ecn_marked), 0u);
    EXPECT_EQ(world.host(1).counter(engine::Counter::cnp_sent), 0u);
    EXPECT_EQ(world.host(0).shared().qps.find(qa.qpn)->requester.congestion.policy, cc::Policy::fixed_window);
}

}  // namespace
}  // namespace roci::sim
