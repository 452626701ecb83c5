// A peer that answers, but late: what the timers must not take for silence.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using SlowPeer = PuppetTest;

/// As against a slow peer (Soft-RoCE under emulation): it works through the whole first request before it looks at the repeated
/// one.
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
    for (uint32_t round = 0; round < 12; ++round) {  // and through the repeated one, from its start
        respond(0);
        world.run_for(900'000);
    }
    for (uint32_t i = 1; i < kPackets; ++i) respond(i);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(a.client.query(qp).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

}  // namespace
}  // namespace roci::sim
