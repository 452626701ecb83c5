// Tests of READs and repeated READs whose memory is deregistered before the last response packet is sent.
#include "fixture.hpp"

namespace roci::sim {
namespace {

struct Replay : PuppetTest {
    static constexpr uint32_t kFirst = 0x100, kPackets = 12;
    Replay() : PuppetTest(WorldOptions{.hosts = 1, .engine = {.qp_quantum = 1}}) {}
    Mr& target = a.client.reg_mr(a.pd, kPackets* kMtu);
    void read() {
        wire::TransportHeaders h;
        h.psn = Psn(kFirst);
        h.ack_request = true;
        h.va = target.address();
        h.rkey = Key{target.rkey};
        h.dma_length = kPackets * kMtu;
        puppet.send(Operation::read_request, h);
    }
    /// Runs until the first packet of a response arrives. The QP sends one packet per round, so some packets of the
    /// response are not sent yet.
    void await_answer() {
        const auto g = puppet.next();
        ASSERT_TRUE(g.has_value());
        ASSERT_EQ(g->op(), Operation::read_response_first);
    }
};

TEST_F(Replay, MemoryThatGoesAwayDuringAReadIsAnAccessError) {
    join();
    read();
    await_answer();
    a.client.dereg_mr(target);
    const auto rest = puppet.listen();
    ASSERT_FALSE(rest.empty());
    EXPECT_EQ(rest.back().op(), Operation::ack);
    EXPECT_EQ(rest.back().packet.syndrome, kNakAccess);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR));
}

// After the response, the program may deregister the memory. A late duplicate of the request must not put the QP into
// the error state.
TEST_F(Replay, MemoryThatGoesAwayDuringARepeatedReadHurtsNobody) {
    join();
    read();
    EXPECT_EQ(puppet.listen().size(), kPackets);
    read();
    await_answer();
    a.client.dereg_mr(target);
    for (const auto& g : puppet.listen()) EXPECT_NE(g.op(), Operation::ack) << "syndrome " << int(g.packet.syndrome);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    ASSERT_TRUE(a.client.post_recv(qp, 1, {a.sge(0, 100)}));
    wire::TransportHeaders h;
    h.psn = Psn(kFirst + kPackets);
    h.ack_request = true;
    puppet.send(Operation::send_only, h, bytes_of(10, 1));
    EXPECT_EQ(a.wait(1).size(), 1u);
}

}  // namespace
}  // namespace roci::sim
