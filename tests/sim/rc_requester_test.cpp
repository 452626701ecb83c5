// Tests of a requester: acknowledgements, sequence errors and timeouts. The responder is a puppet, whose packets the test writes.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using Requester = PuppetTest;
struct GoBackN : PuppetTest {
    GoBackN() : PuppetTest({.hosts = 1, .engine = {.selective_repeat = false}}) {}
};

TEST_F(Requester, SplitsAMessageAtThePathMtuAndNumbersPacketsInARow) {
    join();
    fill(a.mr.data(), 2500, 1);
    a.client.post_send(qp, a.send(1, 0, 2500));
    const auto got = puppet.listen();
    ASSERT_EQ(psns(got), range(0x100, 3));
    EXPECT_EQ(got[0].op(), Operation::send_first);
    EXPECT_EQ(got[1].op(), Operation::send_middle);
    EXPECT_EQ(got[2].op(), Operation::send_last);
    std::vector<uint8_t> all;
    for (const auto& g : got) {
        EXPECT_TRUE(g.packet.mig_req) << "hardware sends MigReq 1 (IBA 17.2.8: migrated)";
        EXPECT_EQ(g.packet.dest_qp.value, Puppet::kQpn);
        EXPECT_EQ(g.packet.pkey, 0xffff);
        const auto p = g.payload();
        all.insert(all.end(), p.begin(), p.end());
    }
    EXPECT_EQ(all, bytes_of(2500, 1));
    EXPECT_TRUE(got[2].packet.ack_request) << "the last packet of what is posted asks for an ACK";
    EXPECT_TRUE(a.poll_all().empty()) << "nothing is complete before the ACK";
    puppet.send_ack(0x102, 1);
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::success);
    EXPECT_EQ(done[0].wr_id, 1u);
}

TEST_F(Requester, PsnWrapsAt24Bits) {
    path.psn = 0xfffffe;
    join();
    a.client.post_send(qp, a.send(1, 0, 4 * kMtu));
    EXPECT_EQ(psns(puppet.listen()), (std::vector<uint32_t>{0xfffffe, 0xffffff, 0, 1}));
    puppet.send_ack(1, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// Coalesced ACKs (IBA 9.7.7.2): one ACK acknowledges every request up to its PSN. The completions must come in the
// order of posting.
TEST_F(Requester, OneAckCompletesAllBeforeItInOrder) {
    join();
    for (uint64_t i = 0; i < 5; ++i) a.client.post_send(qp, a.send(i, 0, 10));
    ASSERT_EQ(puppet.listen().size(), 5u);
    puppet.send_ack(0x103, 4);
    auto done = a.wait(4);
    ASSERT_EQ(done.size(), 4u);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(done[i].wr_id, i);
    world.run_for(10'000);
    EXPECT_TRUE(a.poll_all().empty());
    puppet.send_ack(0x104, 5);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// The local ACK timeout is 4.096 us * 2^n. The QP fails after retry_cnt retransmissions (IBA 9.9.2.1.1).
TEST_F(Requester, TimeoutAndRetryLimitAreExact) {
    for (uint8_t retries : std::initializer_list<uint8_t>{0, 1, 3, 7}) {
        SCOPED_TRACE(int(retries));
        Qp& q = a.qp();
        PathOptions o;
        o.timeout = 10;
        o.retry_cnt = retries;
        connect(a.client, q, puppet, o);
        a.client.post_send(q, a.send(7, 0, 100));
        a.client.post_send(q, a.send(8, 0, 100));
        const auto got = puppet.listen(1'000'000'000);
        ASSERT_EQ(got.size(), 2u * (1u + retries));
        const Nanos timeout = Nanos{4096} << 10;
        for (size_t i = 2; i < got.size(); i += 2) {
            EXPECT_EQ(got[i].psn(), 0x100u);
            const Nanos gap = got[i].when - got[i - 2].when;
            EXPECT_GE(gap, timeout);
            EXPECT_LE(gap, 4 * timeout) << "C9-139: at most four times";
        }
        const auto done = a.poll_all();
        ASSERT_EQ(done.size(), 2u);
        EXPECT_EQ(done[0].wr_id, 7u);
        EXPECT_EQ(done[0].status, WcStatus::retry_exc_err);
        EXPECT_EQ(done[1].wr_id, 8u);
        EXPECT_EQ(done[1].status, WcStatus::wr_flush_err) << "what is behind is flushed, unsignalled or not";
        EXPECT_EQ(a.client.query(q).attr.qp_state, uint32_t(IBV_QPS_ERR));
    }
}

TEST_F(Requester, RetryLimitJustNotExceeded) {
    path.retry_cnt = 3;
    join();
    a.client.post_send(qp, a.send(7, 0, 100));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(puppet.next());
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    // Progress resets the retry counter (IBA 9.9.2.1.1), so all retries are available for the next message.
    a.client.post_send(qp, a.send(8, 0, 100));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(puppet.next());
    puppet.send_ack(0x101, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, TimeoutZeroWaitsForEver) {
    path.timeout = 0;
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    EXPECT_EQ(puppet.listen(60'000'000'000).size(), 1u);
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// Go-back-N: after a sequence NAK the requester continues with the packet whose PSN is in the NAK. It must never send
// an older packet again (C9-115).
TEST_F(GoBackN, RollsBackToTheNakedPsnAndSendsNothingOlder) {
    join();
    a.client.post_send(qp, a.send(1, 0, 8 * kMtu));
    ASSERT_EQ(puppet.listen(50'000).size(), 8u);
    puppet.send_ack(0x103, 0, kNakSequence);
    const auto again = puppet.listen(50'000);
    ASSERT_EQ(psns(again), range(0x103, 5));
    EXPECT_EQ(again[0].op(), Operation::send_middle);
    EXPECT_EQ(again[4].op(), Operation::send_last);
    puppet.send_ack(0x107, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(GoBackN, NakInTheSecondMessageCompletesTheFirst) {
    join();
    a.client.post_send(qp, a.send(1, 0, 2 * kMtu));
    a.client.post_send(qp, a.send(2, 0, 2 * kMtu));
    ASSERT_EQ(puppet.listen(50'000).size(), 4u);
    puppet.send_ack(0x102, 1, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x102, 2));
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 1u);
    puppet.send_ack(0x103, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(GoBackN, ARetransmissionThatIsLostAgainRecovers) {
    path.timeout = 10;
    join();
    a.client.post_send(qp, a.send(1, 0, 4 * kMtu));
    ASSERT_EQ(puppet.listen(50'000).size(), 4u);
    for (int round = 0; round < 5; ++round) {  // in each round the packet is lost again and the peer sends a NAK
        puppet.send_ack(0x101, 0, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(50'000)), range(0x101, 3)) << round;
    }
    puppet.send_ack(0x103, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ACKs outside the expected range are dropped without effect (C9-157).
TEST_F(Requester, GhostAcksAreIgnored) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    for (uint32_t psn : {0x101u, 0x150u, 0x0ffu, 0x0u, 0x800100u, 0x7fffffu, 0xffffffu}) {
        puppet.send_ack(psn, 1);
        puppet.send_ack(psn, 1, kNakSequence);
        puppet.send_ack(psn, 1, kNakAccess);
        puppet.send_ack(psn, 1, rnr_nak(1));
    }
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "no ghost makes us send";
    EXPECT_TRUE(a.poll_all().empty()) << "no ghost completes anything";
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, DuplicateAcksCompleteOnce) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    a.client.post_send(qp, a.send(2, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 2u);
    for (int i = 0; i < 5; ++i) puppet.send_ack(0x100, 1);
    EXPECT_TRUE(puppet.listen(50'000).empty());
    EXPECT_EQ(a.poll_all().size(), 1u);
    puppet.send_ack(0x101, 2);
    puppet.send_ack(0x100, 1);  // an old ACK that arrives after a newer one
    world.run_for(50'000);
    EXPECT_EQ(a.poll_all().size(), 1u);
}

}  // namespace
}  // namespace roci::sim
