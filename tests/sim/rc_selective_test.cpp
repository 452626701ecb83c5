// Tests of selective repeat and probes: which packets the requester sends again, and at which time. The responder is a puppet,
// whose packets the test writes.
#include "base/time_source.hpp"
#include "fixture.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

struct Selective : PuppetTest {
    using PuppetTest::PuppetTest;
    qp::RepeatMode mode() { return world.host(0).shared().qps.find(qp.qpn)->requester.repair.mode; }
    const qp::RoundTrip& times() { return world.host(0).shared().qps.find(qp.qpn)->requester.round_trip; }
    /// Sends one WRITE of `packets` packets.
    void write(uint32_t packets) {
        a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, packets * kMtu, 0x1000, 7));
        ASSERT_EQ(puppet.listen(10'000).size(), packets);
    }
    /// Sends a WRITE and acknowledges it, so that the QP has measured a round trip.
    void exchange(uint32_t psn) {
        write(1);
        world.run_for(50'000);
        puppet.send_ack(psn, 1);
        ASSERT_EQ(a.wait_status(), WcStatus::success);
    }
    /// Measures one round trip of about `trip`, then sends packets 0x101 to 0x108 and loses 0x102 with its repair. A probe
    /// follows.
    void lose_after_a_round_trip(Nanos trip) {
        path.timeout = 18;  // about one second
        join();
        write(1);
        world.run_for(trip);
        puppet.send_ack(0x100, 1);
        ASSERT_EQ(a.wait_status(), WcStatus::success);
        write(8);
        lose_with_repair(0x102, 1, 10'000'000);
    }
    /// Reports the packet as missing and does not acknowledge the repeated packet. Expects a probe within `most`.
    void lose_with_repair(uint32_t psn, uint32_t msn, Nanos most = 1'000'000) {
        puppet.send_ack(psn, msn, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(10'000)), range(psn, 1));
        const auto probe = puppet.next(most);
        ASSERT_TRUE(probe && probe->psn() == psn);
    }
};

TEST_F(Selective, TheMissingPacketAloneIsSentAgainAndNewOnesGoOn) {
    join();
    write(8);
    puppet.send_ack(0x103, 0, kNakSequence);
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), range(0x103, 1));
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 2, 0, kMtu, 0x1000, 7));
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x108, 1)) << "no window is lost";
    EXPECT_TRUE(again[0].packet.ack_request);
    puppet.send_ack(0x108, 2);
    EXPECT_EQ(a.wait(2).size(), 2u);
    EXPECT_EQ(mode(), qp::RepeatMode::selective) << "the acknowledgement jumped: the peer keeps packets";
}

TEST_F(Selective, APeerThatKeepsNothingCostsOneRoundTripThenTheQpGoesBackN) {
    join();
    write(8);
    puppet.send_ack(0x103, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x103, 1));
    puppet.send_ack(0x104, 0, kNakSequence);  // the peer reports the next packet as missing, too
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x104, 4));
    EXPECT_EQ(mode(), qp::RepeatMode::go_back_n);
    puppet.send_ack(0x105, 0, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x105, 3));
    puppet.send_ack(0x107, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Selective, AnAckThatCreepsShowsTheSameAsANak) {
    join();
    write(8);
    puppet.send_ack(0x103, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x103, 1));
    puppet.send_ack(0x103, 0);  // this ACK acknowledges only the repaired packet
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x104, 4));
    puppet.send_ack(0x107, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Selective, ABurstIsRepairedByTwiceAsManyPacketsEachTime) {
    join();
    write(4);
    puppet.send_ack(0x100, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    puppet.send_ack(0x103, 1);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    ASSERT_EQ(mode(), qp::RepeatMode::selective);
    write(16);
    uint32_t at = 0x105;
    for (const uint32_t count : {1u, 2u, 4u}) {
        puppet.send_ack(at, 1, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(10'000)), range(at, count));
        at += count;
    }
    puppet.send_ack(0x113, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(mode(), qp::RepeatMode::selective);
}

TEST_F(Selective, AfterSomeLossesAPeerThatKeptNothingIsTriedAgain) {
    join();
    write(8);
    puppet.send_ack(0x100, 0, kNakSequence);
    ASSERT_EQ(puppet.listen(10'000).size(), 1u);
    for (uint32_t psn = 0x101; psn < 0x105; ++psn) {
        puppet.send_ack(psn, 0, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(10'000)), range(psn, 0x108 - psn));
    }
    EXPECT_EQ(mode(), qp::RepeatMode::unknown);
    puppet.send_ack(0x105, 0, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x105, 1));
    puppet.send_ack(0x107, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Selective, ALostTailIsProbedForLongBeforeTheTimeoutAndCostsNoRetry) {
    path.timeout = 18;  // about one second
    path.retry_cnt = 0;
    join();
    exchange(0x100);
    write(2);  // the peer does not respond
    const Nanos start = world.now();
    const auto probes = puppet.listen(100'000'000);
    ASSERT_GE(probes.size(), 3u);
    EXPECT_LT(probes[0].when - start, 1'000'000u);
    for (const auto& p : probes) {
        EXPECT_EQ(p.psn(), 0x101u);
        EXPECT_TRUE(p.packet.ack_request);
    }
    for (size_t i = 2; i < probes.size(); ++i)
        EXPECT_GT(probes[i].when - probes[i - 1].when, probes[i - 1].when - probes[i - 2].when) << "they become rare";
    puppet.send_ack(0x102, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(mode(), qp::RepeatMode::unknown) << "a probe says nothing about what the peer keeps";
}

// The peer sends a NAK for a second loss after the first repair, but this NAK is lost. The peer never repeats a NAK.
TEST_F(Selective, TheAnswerToAProbeReportsThePacketWhoseNakWasLost) {
    join();
    exchange(0x100);
    write(8);
    lose_with_repair(0x103, 1);
    world.run_for(60'000);      // a round trip
    puppet.send_ack(0x104, 1);  // 0x105 was sent long before the probe
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x105, 1));
    puppet.send_ack(0x108, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// The only round trip was measured while queues were long. All later round trips lose a packet.
TEST_F(Selective, ARepairAfterAProbeShowsThatTheRoundTripIsShort) {
    lose_after_a_round_trip(1'000'000);
    for (const uint32_t lost : {0x104u, 0x106u}) {
        puppet.send_ack(lost, 1, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(10'000)), range(lost, 1));
    }
    const Nanos repaired = world.now();
    const auto next = puppet.next(10'000'000);  // the repair of 0x106 is lost
    ASSERT_TRUE(next && next->psn() == 0x106);
    EXPECT_LT(next->when - repaired, 150'000u);
    puppet.send_ack(0x108, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

/// A clock that shows, after the engine has sent, that sending took half of the round.
struct LateClock final : TimeSource {
    static constexpr Nanos kRound = 20'000;
    const World* world = nullptr;
    Nanos now() const override { return world->now() + kRound / 2; }
};

struct SlowPorts : Selective {
    static inline LateClock clock;
    static WorldOptions options() {
        WorldOptions o{.hosts = 1};
        o.engine.clock = &clock;
        o.round_cost = LateClock::kRound;
        return o;
    }
    SlowPorts() : Selective(options()) { clock.world = &world; }
    void post(uint32_t packets) { a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, packets * kMtu, 0x1000, 7)); }
};

/// The time that a port needs to send is part of the round trips of ACKs that arrive meanwhile.
TEST_F(SlowPorts, AnAckThatArrivesWhileTheEngineSendsHasALongRoundTrip) {
    join();
    post(1);
    ASSERT_TRUE(puppet.next(10 * LateClock::kRound));
    post(200);  // the engine sends in each of the next rounds
    puppet.send_ack(0x100, 1);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(times().shortest() % LateClock::kRound, LateClock::kRound / 2) << "whole rounds, and the time of sending";
}

/// The peer reports a packet twice, and the packet is sent again twice. The ACK acknowledges the first of the two, so the time
/// since the second one is not a round trip. A round trip that is too short would make every later packet seem to wait in a
/// queue.
TEST_F(Selective, ASecondRepairOfAPacketMeasuresNoRoundTrip) {
    lose_after_a_round_trip(100'000);
    const uint32_t shortest = times().shortest();
    ASSERT_GT(shortest, 90'000u);
    puppet.send_ack(0x104, 1, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(shortest)), range(0x104, 1));
    puppet.send_ack(0x104, 1, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x104, 1));
    puppet.send_ack(0x108, 2);
    ASSERT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(times().shortest(), shortest);
}

/// The thread of the engine has no CPU when the ACK arrives. After the pause the timer for the probe has long expired. The
/// engine must process the ACK before it handles the timer.
TEST_F(Selective, AnAckThatArrivesWhileTheEngineHasNoCpuPreventsTheProbe) {
    join();
    exchange(0x100);
    write(1);
    puppet.send_ack(0x101, 2);
    world.host(0).pause(world.now() + 3'000'000);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_TRUE(puppet.listen(100'000).empty());
}

/// As in the previous test, but the port holds so many frames that one round does not receive the ACK.
TEST_F(Selective, AnAckBehindManyFramesPreventsTheProbe) {
    join();
    exchange(0x100);
    write(1);
    for (int i = 0; i < 700; ++i) puppet.send_ack(0x80, 0);
    puppet.send_ack(0x101, 2);
    world.host(0).pause(world.now() + 3'000'000);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_TRUE(puppet.listen(100'000).empty());
}

TEST_F(Selective, AFloodOfFramesDoesNotStopTheTimers) {
    join();
    exchange(0x100);
    write(1);
    const std::vector<uint8_t> junk(64);
    const auto probed = [&] { return world.host(0).shared().qps.find(qp.qpn)->requester.probes != 0; };
    EXPECT_TRUE(world.run_until(
        [&] {
            for (int i = 0; i < 300; ++i) world.net().inject(world.host(0).endpoint(0), junk);
            return probed();
        },
        1'000'000));
}

TEST_F(Selective, ALossOfAFirstPacketIsRepairedBeforeTheTimeoutEvenIfTheRepairIsLost) {
    path.timeout = 18;  // about one second
    join();
    write(8);
    lose_with_repair(0x103, 0);
    puppet.send_ack(0x107, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Selective, TheRetryLimitIsThatOfTheAckTimeoutAlone) {
    path.timeout = 10;
    path.retry_cnt = 1;
    join();
    exchange(0x100);
    write(2);
    const Nanos start = world.now();
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    const Nanos timeout = Nanos{4096} << 10;
    EXPECT_GE(world.now() - start + 100'000, 2 * timeout);
    EXPECT_LE(world.now() - start, 8 * timeout) << "C9-139: at most four times each";
}

TEST_F(Selective, ALostReadRequestIsAskedForWhole) {
    join();
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, kMtu, 0x1000, 7));
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, 2, 0, 4 * kMtu, 0x1000, 7));
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 3, 0, kMtu, 0x1000, 7));
    ASSERT_EQ(puppet.listen(10'000).size(), 3u);
    puppet.send_ack(0x101, 1, kNakSequence);
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), range(0x101, 1));
    EXPECT_EQ(again[0].packet.dma_length, 4 * kMtu);
}

}  // namespace
}  // namespace roci::sim
