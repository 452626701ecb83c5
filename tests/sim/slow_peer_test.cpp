// Tests of a peer that responds late. The timeouts must not put the QP into the error state while the peer responds.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using SlowPeer = PuppetTest;

/// A slow peer, for example Soft-RoCE on an emulated machine. It finishes the first request before it starts the
/// repeated request.
TEST_F(SlowPeer, ALongReadThatLostAPacketIsNotGivenUpWhileThePeerAnswers) {
    constexpr uint32_t kPackets = 64;
    join();
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, 1, 0, kPackets * kMtu, 0x1000, 7));
    ASSERT_EQ(puppet.listen().size(), 1u);
    const auto respond = [&](uint32_t i) {
        wire::TransportHeaders h;
        h.psn = Psn(0x100 + i);
        h.syndrome = 31;
        const auto op = i == 0              ? Operation::read_response_first
                        : i + 1 == kPackets ? Operation::read_response_last
                                            : Operation::read_response_middle;
        puppet.send(op, h, bytes_of(kMtu, i));
    };
    for (uint32_t i = 0; i < kPackets; ++i) {
        if (i != 1) respond(i);
        world.run_for(900'000);  // the timeout is 1 ms
    }
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    // The peer answers the repeated request: it responds again to the start of the READ.
    for (uint32_t round = 0; round < 12; ++round) {
        respond(0);
        world.run_for(900'000);
    }
    for (uint32_t i = 1; i < kPackets; ++i) respond(i);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(a.client.query(qp).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

/// Many QPs send to one host. The host takes 50 us per frame and has a queue of 256 frames. All QPs together may have
/// 4096 frames in flight.
struct SlowReceiver : ::testing::TestWithParam<cc::Policy> {
    static constexpr uint32_t kQps = 16, kWrites = 8, kLength = 64 << 10;
    static WorldOptions options() {
        WorldOptions o;
        o.congestion = GetParam();
        o.engine.loss_reports = GetParam() != cc::Policy::fixed_window;
        return o;
    }
    World world{options()};
    Side a{world, world.host(0), 0, kLength}, b{world, world.host(1), 0, kLength};
    std::vector<Qp*> sending;
    SlowReceiver() {
        PathOptions o;
        o.timeout = 10;  // 4 ms, which is a third of the time that a full queue takes
        for (uint32_t i = 0; i < kQps; ++i) {
            sending.push_back(&a.qp());
            connect(a.client, *sending.back(), b.client, b.qp(), o);
        }
        world.net().intake(world.host(1).endpoint(0)) = {.per_frame = 50'000, .room = 256};
        world.net().keep_capture(false);
    }
};

TEST_P(SlowReceiver, ManyQpsShareWhatItCanTake) {
    fill(a.mr.data(), kLength, 1);
    for (Qp* q : sending)
        for (uint32_t i = 0; i < kWrites; ++i)
            a.client.post_send(*q, a.rdma(WrOpcode::rdma_write, i, 0, kLength, b.mr.address(), b.mr.rkey));
    const auto done = a.wait(kQps * kWrites);
    ASSERT_EQ(done.size(), kQps * kWrites);
    for (const auto& c : done) ASSERT_EQ(c.status, WcStatus::success);
    EXPECT_EQ(first_wrong(b.mr.data(), kLength, 1), -1);
    const uint64_t needed = uint64_t{kQps} * kWrites * (kLength / 1024);
    RecordProperty("frames_per_needed", std::to_string(double(world.net().frames()) / double(needed)));
    EXPECT_LT(world.net().frames(), 3 * needed) << "most of what is sent gets through";
    EXPECT_EQ(world.shut_down(), "");
}
INSTANTIATE_TEST_SUITE_P(All, SlowReceiver, ::testing::Values(cc::Policy::fixed_window, cc::Policy::adaptive),
                         [](const auto& i) { return std::string(cc::policy_name(i.param)); });

}  // namespace
}  // namespace roci::sim
