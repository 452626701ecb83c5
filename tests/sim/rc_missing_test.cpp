// Tests of a requester that loses READ responses and later requests: probes, repeated requests, counters, and the
// work per ACK.
#include "qp/reorder_pool.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"
#include "read_fixture.hpp"

namespace roci::sim {
namespace {

struct MissingTest : ReadTest {
    roci::qp::Qp& state_of() { return *world.host(0).shared().qps.find(qp.qpn); }
    void write(uint64_t id, uint32_t packets = 1) {
        a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, id, 0, packets * kMtu, 0x1000, 7));
    }
    /// Loses one of eight WRITEs and repairs the loss. Then the QP has measured a round trip and has learned that the
    /// peer keeps packets behind a gap. Uses PSNs 0x100 … 0x107.
    void learn_that_the_peer_keeps_packets() {
        for (uint64_t i = 0; i < 8; ++i) write(i);
        ASSERT_EQ(puppet.listen(10'000).size(), 8u);
        world.run_for(50'000);
        puppet.send_ack(0x103, 3, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(10'000)), range(0x103, 1));
        world.run_for(50'000);
        puppet.send_ack(0x107, 8);
        ASSERT_EQ(a.wait(8).size(), 8u);
        ASSERT_EQ(state_of().requester.repair.mode, roci::qp::RepeatMode::selective);
    }
};

// Three packets are lost: the first response packet of a READ, the WRITE after the READ, and the first repeat of this
// WRITE. After the missing response has arrived, the requester keeps no packets. There is no ACK timeout, so a probe
// must send the WRITE.
TEST_F(MissingTest, AProbeSendsTheRequestThatWasRepairedWithAResponse) {
    path.timeout = 0;
    join();
    learn_that_the_peer_keeps_packets();
    read(10, 6 * kMtu);
    write(11);
    ASSERT_EQ(puppet.listen(5'000).size(), 2u);
    respond(0x108, 6, 1, 5, 9, 9);  // response packet 0 is lost
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x108, 1));
    puppet.send_ack(0x10e, 9, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x10e, 1)) << "the WRITE, which is lost again";
    respond_part(0x108, 0, 9);
    const auto again = puppet.next();
    ASSERT_TRUE(again) << "a probe";
    EXPECT_EQ(again->psn(), 0x10eu);
    puppet.send_ack(0x10e, 10);
    EXPECT_EQ(a.wait(2).size(), 2u);
}

TEST_F(MissingTest, ANakThatIsKeptIsCountedOnce) {
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 4 * kMtu, i * 4 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 3u);
    respond(0x100, 4, 1, 3, 9);  // response packet 0 is lost
    respond(0x104, 4, 0, 3, 9, 2);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    puppet.send_ack(0x108, 2, kNakSequence);
    puppet.listen(10'000);
    respond_part(0x100, 0, 9);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x108, 1));
    EXPECT_EQ(state_of().counters.events.seq_nak_received, 1u);
    respond(0x108, 4, 0, 3, 9, 3);
    EXPECT_EQ(a.wait(3).size(), 3u);
}

// The requester waits after an RNR NAK. During the wait a second RNR NAK arrives. After the wait the requester sends
// all requests again. From the responses that it has kept, it must not conclude another loss, and it must not use up a
// retry for them.
TEST_F(MissingTest, ASecondRollBackKnowsWhatIsStillToBeSentAgain) {
    path.retry_cnt = 1;
    path.timeout = 0;
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 4 * kMtu, i * 4 * kMtu);
    a.client.post_send(qp, a.send(4, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 4u);
    for (int i = 0; i < 2; ++i) puppet.send_ack(0x10c, 3, rnr_nak(20));  // RNR NAKs with a timer of 10 ms
    EXPECT_TRUE(puppet.listen(50'000).empty());
    const auto losses = [&] { return state_of().counters.events.implied_naks; };
    const uint64_t before = losses();
    for (uint32_t i = 4; i < 12; i += 2) {  // response packets 0 … 4, 6, 8 and 10 are lost
        respond(0x100, 12, i + 1, i + 1, 9);
        world.run_for(100'000);
    }
    EXPECT_EQ(losses(), before);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    EXPECT_TRUE(puppet.listen(50'000).empty());
}

// A NAK names a request while the list of repeated requests (qp::Asked) is full. The requester must send this request
// when the list has a free entry.
TEST_F(MissingTest, ARequestThatFindsTheListFullIsSentLater) {
    constexpr uint32_t kMost = roci::qp::Asked::kMost, kPackets = 2 * kMost + 2;
    path.timeout = 0;
    join();
    learn_that_the_peer_keeps_packets();
    read(10, kPackets * kMtu);
    write(11);
    ASSERT_EQ(puppet.listen(5'000).size(), 2u);
    for (uint32_t i = 1; i < 2 * kMost + 2; i += 2) respond(0x108, kPackets, i, i, 9, 9);
    ASSERT_EQ(puppet.listen(60'000).size(), kMost);
    puppet.send_ack(0x108 + kPackets, 9, kNakSequence);
    ASSERT_TRUE(puppet.listen(5'000).empty()) << "the list is full";
    respond_part(0x108, 0, 9);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x108 + 2 * kMost, 1)) << "full again";
    respond_part(0x10a, 2, 9);
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x108 + kPackets, 1));
}

// A peer may send an ACK for each of its frames. The work per ACK must not grow with the number of kept responses.
TEST_F(MissingTest, AnAckDoesNotExamineAllKeptResponsesAgain) {
    path.timeout = 0;
    join();
    read(1, 200 * kMtu);
    a.client.post_send(qp, a.send(2, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 2u);
    respond(0x100, 200, 1, 199, 9);  // response packet 0 is lost
    puppet.listen(200'000);
    const uint64_t before = state_of().reorder->missing.examined;
    for (uint32_t i = 0; i < 100; ++i) puppet.send_ack(0x100 + 200, 2);
    puppet.listen(100'000);
    EXPECT_LT(state_of().reorder->missing.examined - before, 100 * 8u);
}

// Many WRITEs are between two READs. The PSNs of these WRITEs have no responses. The search for missing responses
// must not examine these PSNs again and again.
TEST_F(MissingTest, RequestsWithoutResponseAreExaminedOnce) {
    path.timeout = 0;
    join();
    read(1, kMtu);
    for (uint64_t i = 0; i < 60; ++i) write(2 + i, 3);
    read(300, kMtu);
    ASSERT_EQ(puppet.listen(200'000).size(), 182u);
    respond(0x100 + 181, 1, 0, 0, 9, 62);
    ASSERT_EQ(psns(puppet.listen(50'000)), range(0x100, 1));
    EXPECT_LT(state_of().reorder->missing.examined, 10 * 181u);
}

TEST_F(MissingTest, ResetForgetsTheTimeOfRepairs) {
    join();
    learn_that_the_peer_keeps_packets();
    ASSERT_NE(state_of().repair_time.loaded(), 0u);
    a.client.to_state(qp, IBV_QPS_RESET);
    EXPECT_EQ(state_of().repair_time.loaded(), 0u);
}

}  // namespace
}  // namespace roci::sim
