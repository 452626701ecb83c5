// The requester against a puppet that answers exactly what the test says.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using Requester = PuppetTest;

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

// IBA 9.7.7.2 coalesced ACK: one acknowledges every request up to its PSN; completions come in the order of posting.
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

// IBA 9.9.2.1.1: the local ACK timeout is 4.096 us * 2^n, and it takes retry_cnt retransmissions before the QP gives up.
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
    // Progress refills the counter (IBA 9.9.2.1.1): the next message has all retries again.
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

// Go-back-N: after a sequence NAK the next packet is the NAKed one, and nothing older is ever sent again (C9-115).
TEST_F(Requester, RollsBackToTheNakedPsnAndSendsNothingOlder) {
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

TEST_F(Requester, NakInTheSecondMessageCompletesTheFirst) {
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

TEST_F(Requester, ARetransmissionThatIsLostAgainRecovers) {
    path.timeout = 10;
    join();
    a.client.post_send(qp, a.send(1, 0, 4 * kMtu));
    ASSERT_EQ(puppet.listen(50'000).size(), 4u);
    for (int round = 0; round < 5; ++round) {  // the packet is lost every time, and the peer says so every time
        puppet.send_ack(0x101, 0, kNakSequence);
        ASSERT_EQ(psns(puppet.listen(50'000)), range(0x101, 3)) << round;
    }
    puppet.send_ack(0x103, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ACKs that answer nothing change nothing (C9-157: outside of the expected range they are dropped).
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
    puppet.send_ack(0x100, 1);  // an old one that was overtaken
    world.run_for(50'000);
    EXPECT_EQ(a.poll_all().size(), 1u);
}

// ---- READ -----------------------------------------------------------------------------------------------------------

struct ReadTest : PuppetTest {
    void read(uint64_t id, uint32_t bytes, uint64_t offset = 0) {
        a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, id, offset, bytes, 0x10000, 0x1234));
    }
    /// Response packets first..last of the READ whose request has PSN `base` and `total` packets.
    void respond(uint32_t base, uint32_t total, uint32_t first, uint32_t last, uint64_t tag, uint32_t msn = 1) {
        for (uint32_t i = first; i <= last; ++i) {
            wire::TransportHeaders h;
            h.psn = Psn(base + i);
            h.syndrome = 31;
            h.msn = Msn{msn};
            const Operation op = total == 1       ? Operation::read_response_only
                                 : i == 0         ? Operation::read_response_first
                                 : i + 1 == total ? Operation::read_response_last
                                                  : Operation::read_response_middle;
            std::vector<uint8_t> p(kMtu);
            for (uint32_t k = 0; k < kMtu; ++k) p[k] = pattern_byte(tag, uint64_t{i} * kMtu + k);
            puppet.send(op, h, p);
        }
    }
};

TEST_F(ReadTest, PlacesTheResponseAndTakesAPsnAPacket) {
    join();
    read(1, 3 * kMtu);
    a.client.post_send(qp, a.send(2, 0, 10));
    const auto got = puppet.listen(50'000);
    ASSERT_EQ(psns(got), (std::vector<uint32_t>{0x100, 0x103}))
        << "a READ takes as many PSNs as its response has packets (C9-148)";
    EXPECT_EQ(got[0].packet.va, 0x10000u);
    EXPECT_EQ(got[0].packet.rkey.value, 0x1234u);
    EXPECT_EQ(got[0].packet.dma_length, 3 * kMtu);
    respond(0x100, 3, 0, 2, 9);
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::success);
    EXPECT_EQ(done[0].opcode, abi::WcOpcode::rdma_read);
    EXPECT_EQ(done[0].byte_len, 3 * kMtu);
    EXPECT_EQ(first_wrong(a.mr.data(), 3 * kMtu, 9), -1);
}

// A gap in the responses is an implied NAK: ask again from the first missing byte, at its PSN (IBA 9.7.5.1.1, C9-150).
TEST_F(ReadTest, LostResponseIsAskedForAgainFromTheMissingPsn) {
    join();
    read(1, 5 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 5, 0, 1, 9);
    respond(0x100, 5, 3, 4, 9);  // 2 is lost
    const auto again = puppet.listen(50'000);
    ASSERT_EQ(again.size(), 1u) << "once, not once a later response";
    EXPECT_EQ(again[0].psn(), 0x102u);
    EXPECT_EQ(again[0].op(), Operation::read_request);
    EXPECT_EQ(again[0].packet.va, 0x10000u + 2 * kMtu);
    EXPECT_EQ(again[0].packet.dma_length, 3 * kMtu);
    respond(0x102, 3, 0, 2, 0);
    // the bytes of the second answer start at 2 MTU
    auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::success);
    EXPECT_EQ(done[0].byte_len, 5 * kMtu);
    EXPECT_EQ(first_wrong(a.mr.data(), 2 * kMtu, 9), -1);
    EXPECT_EQ(first_wrong(a.mr.data() + 2 * kMtu, 3 * kMtu, 0), -1);
}

TEST_F(ReadTest, LostTailOfAResponseRecoversByTimeout) {
    join();
    read(1, 3 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 3, 0, 1, 9);
    const auto again = puppet.next();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->psn(), 0x102u);
    EXPECT_EQ(again->packet.dma_length, kMtu);
    respond(0x102, 1, 0, 0, 3);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// Responses overtake each other: the awaited one comes right behind the one that told of its loss. It is taken, and only what is
// still missing is asked for again; else heavy reordering uses up the retries (seed 203 did).
TEST_F(ReadTest, AwaitedResponseIsTakenAlthoughTheReadWasRolledBack) {
    join();
    for (uint32_t end = 0; end < 2; ++end) world.net().link(end).bits_per_second = 1'000'000'000'000'000;  // both arrive at once
    read(1, 2 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 2, 1, 1, 9);
    respond(0x100, 2, 0, 0, 9);
    const auto again = puppet.listen(50'000);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn(), 0x101u);
    EXPECT_EQ(again[0].packet.dma_length, kMtu);
    respond(0x101, 1, 0, 0, 3);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data(), kMtu, 9), -1);
    EXPECT_EQ(first_wrong(a.mr.data() + kMtu, kMtu, 3), -1);
}

// An ACK of a later request says that the READ's response was lost (implied NAK), not that the READ is done.
TEST_F(ReadTest, AckOfALaterRequestDoesNotCompleteARead) {
    join();
    read(1, 2 * kMtu);
    a.client.post_send(qp, a.send(2, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 2u);
    puppet.send_ack(0x102, 2);
    const auto again = puppet.listen(50'000);
    ASSERT_GE(again.size(), 1u);
    EXPECT_EQ(again[0].op(), Operation::read_request);
    EXPECT_EQ(again[0].psn(), 0x100u);
    EXPECT_TRUE(a.poll_all().empty());
    respond(0x100, 2, 0, 1, 4);
    puppet.send_ack(0x102, 2);
    const auto done = a.wait(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].wr_id, 1u);
    EXPECT_EQ(done[1].wr_id, 2u);
    EXPECT_EQ(first_wrong(a.mr.data(), 2 * kMtu, 4), -1);
}

// The peer goes on NAKing later gaps while the response of a READ is awaited: it is alive, and going back once is enough.
TEST_F(ReadTest, NaksBehindAMissingResponseTakeOneRetry) {
    path.retry_cnt = 2;
    path.timeout = 14;
    join();
    read(1, kMtu);
    for (uint64_t i = 0; i < 8; ++i) a.client.post_send(qp, a.send(10 + i, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 9u);
    for (uint32_t i = 1; i < 8; ++i) puppet.send_ack(0x101 + i, i, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x100, 9)) << "once, from the READ on";
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    respond(0x100, 1, 0, 0, 4);
    puppet.send_ack(0x108, 9);
    EXPECT_EQ(a.wait(9).size(), 9u);
}

TEST_F(ReadTest, ReadResponseAcknowledgesEarlierRequests) {
    join();
    a.client.post_send(qp, a.send(1, 0, 10));
    read(2, kMtu, 4096);
    ASSERT_EQ(puppet.listen(50'000).size(), 2u);
    respond(0x101, 1, 0, 0, 4, 2);
    const auto done = a.wait(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].wr_id, 1u);
    EXPECT_EQ(done[1].wr_id, 2u);
}

// Responses to what was never asked for touch no memory (ghosts).
TEST_F(ReadTest, UnsolicitedResponsesAreIgnored) {
    join();
    const std::vector<uint8_t> before(a.mr.data(), a.mr.data() + 8 * kMtu);
    respond(0x100, 3, 0, 2, 9);
    a.client.post_send(qp, a.send(1, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 1, 0, 0, 9);  // answers a SEND
    world.run_for(50'000);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(std::vector<uint8_t>(a.mr.data(), a.mr.data() + 8 * kMtu), before);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(ReadTest, DuplicateResponsesAreIgnored) {
    join();
    read(1, 2 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 2, 0, 0, 9);
    respond(0x100, 2, 0, 0, 1);  // same PSN, other bytes
    respond(0x100, 2, 1, 1, 9);
    respond(0x100, 2, 0, 1, 1);
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    world.run_for(50'000);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(first_wrong(a.mr.data(), 2 * kMtu, 9), -1);
}

// IBA 10.8.3.3 / max_rd_atomic: no more READs under way than were agreed.
TEST_F(ReadTest, OutstandingReadsAreBounded) {
    path.max_rd_atomic = 2;
    join();
    for (uint64_t i = 0; i < 5; ++i) read(i, kMtu, i * kMtu);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x100, 2));
    respond(0x100, 1, 0, 0, 1);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x102, 1));
    for (uint32_t i = 1; i < 5; ++i) {
        respond(0x100 + i, 1, 0, 0, i);
        puppet.listen(20'000);
    }
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 5u);
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(done[i].wr_id, i);
}

TEST_F(ReadTest, FenceWaitsForReads) {
    join();
    read(1, kMtu);
    SendWr fenced = a.send(2, 0, 10);
    fenced.flags |= abi::kSendFence;
    a.client.post_send(qp, fenced);
    EXPECT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 1, 0, 0, 5);
    const auto after = puppet.listen(50'000);
    ASSERT_EQ(after.size(), 1u);
    EXPECT_EQ(after[0].op(), Operation::send_only);
    puppet.send_ack(0x101, 2);
    EXPECT_EQ(a.wait(2).size(), 2u);
}

TEST_F(ReadTest, ResponseOfTheWrongLengthEndsTheQp) {
    join();
    read(1, 2 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    wire::TransportHeaders h;
    h.psn = Psn(0x100);
    h.syndrome = 31;
    puppet.send(Operation::read_response_first, h, bytes_of(kMtu / 2, 1));
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_NE(done[0].status, WcStatus::success);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR));
}

// ---- RNR ------------------------------------------------------------------------------------------------------------

TEST_F(Requester, WaitsTheTimeOfAnRnrNak) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    const auto first = puppet.next();
    ASSERT_TRUE(first);
    puppet.send_ack(0x100, 0, rnr_nak(14));  // code 14: 1.28 ms (IBA table 46)
    const Nanos from = world.now();
    const auto again = puppet.next();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->psn(), 0x100u);
    EXPECT_GE(again->when - from, 1'280'000u);
    EXPECT_LE(again->when - from, 2 * 1'280'000u);
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, RnrRetryLimitIsExact) {
    for (uint8_t retries : std::initializer_list<uint8_t>{0, 1, 6}) {
        SCOPED_TRACE(int(retries));
        Qp& q = a.qp();
        PathOptions o;
        o.rnr_retry = retries;
        connect(a.client, q, puppet, o);
        a.client.post_send(q, a.send(7, 0, 100));
        for (int i = 0; i <= retries; ++i) {
            ASSERT_TRUE(puppet.next()) << i;
            puppet.send_ack(0x100, 0, rnr_nak(1));
        }
        EXPECT_TRUE(puppet.listen(10'000'000).empty());
        const auto done = a.poll_all();
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].status, WcStatus::rnr_retry_exc_err);
    }
}

TEST_F(Requester, RnrRetrySevenIsForEver) {
    join();
    a.client.post_send(qp, a.send(7, 0, 100));
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(puppet.next()) << i;
        puppet.send_ack(0x100, 0, rnr_nak(1));
    }
    ASSERT_TRUE(puppet.next());
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

// NAK codes and what the oldest WQE completes with (IBA 9.9.2.4.2, 11.6.2); everything behind it is flushed.
TEST_F(Requester, NakCodesBecomeTheirStatus) {
    const std::pair<uint8_t, WcStatus> cases[] = {{kNakInvalid, WcStatus::rem_inv_req_err},
                                                  {kNakAccess, WcStatus::rem_access_err},
                                                  {kNakOperational, WcStatus::rem_op_err}};
    for (const auto& [syndrome, status] : cases) {
        Qp& q = a.qp();
        connect(a.client, q, puppet, {});
        for (uint64_t i = 0; i < 3; ++i) a.client.post_send(q, a.send(i, 0, 100));
        ASSERT_EQ(puppet.listen(50'000).size(), 3u);
        puppet.send_ack(0x101, 1, syndrome);
        const auto done = a.wait(3);
        ASSERT_EQ(done.size(), 3u);
        EXPECT_EQ(done[0].status, WcStatus::success) << "a NAK acknowledges what is before it";
        EXPECT_EQ(done[1].status, status);
        EXPECT_EQ(done[2].status, WcStatus::wr_flush_err);
        EXPECT_EQ(a.client.query(q).attr.qp_state, uint32_t(IBV_QPS_ERR));
    }
}

TEST_F(Requester, ReservedSyndromesAreIgnored) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    for (uint8_t s : std::initializer_list<uint8_t>{0x40, 0x5f, 0x65, 0x7f}) puppet.send_ack(0x100, 1, s);
    world.run_for(50'000);
    EXPECT_TRUE(a.poll_all().empty());
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, LocalProtectionErrorSendsNothingOfThatRequest) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    SendWr bad = a.send(2, 0, 100);
    bad.sges[0].addr = a.mr.address() + a.mr.length - 50;
    a.client.post_send(qp, bad);
    a.client.post_send(qp, a.send(3, 0, 100));
    const auto got = puppet.listen(50'000);
    EXPECT_EQ(psns(got), range(0x100, 1));
    puppet.send_ack(0x100, 1);
    const auto done = a.wait(3);
    ASSERT_EQ(done.size(), 3u);
    EXPECT_EQ(done[0].status, WcStatus::success) << "what was before it is not hurt";
    EXPECT_EQ(done[1].status, WcStatus::loc_prot_err);
    EXPECT_EQ(done[2].status, WcStatus::wr_flush_err);
}

TEST_F(Requester, BadLkeyForeignPdAndStaleKeyAreLocalProtectionErrors) {
    const uint32_t other_pd = a.client.alloc_pd();
    Mr& foreign = a.client.reg_mr(other_pd, 4096);
    Mr& stale = a.client.reg_mr(a.pd, 4096);
    const uint32_t stale_key = stale.lkey;
    a.client.dereg_mr(stale);
    for (const Sge& s : {Sge{a.mr.address(), 10, 0}, Sge{a.mr.address(), 10, 0xffffffff}, Sge{a.mr.address(), 10, a.mr.lkey ^ 1},
                         Sge{foreign.address(), 10, foreign.lkey}, Sge{stale.address(), 10, stale_key}}) {
        Qp& q = a.qp();
        connect(a.client, q, puppet, {});
        SendWr w = a.send(1, 0, 1);
        w.sges = {s};
        a.client.post_send(q, w);
        EXPECT_EQ(a.wait_status(), WcStatus::loc_prot_err);
        EXPECT_TRUE(puppet.listen(20'000).empty());
    }
}

// SQD: nothing new starts, what was begun completes, then the event (IBA 10.3.1.5).
TEST_F(Requester, SqdDrainsAndRtsGoesOn) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    abi::QpAttr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(a.client.try_modify(qp, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, attr), 0) << a.client.reason();
    a.client.post_send(qp, a.send(2, 0, 100));
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "nothing new in SQD";
    auto& asyncs = a.client.host().platform().asyncs[a.client.session()];
    EXPECT_TRUE(asyncs.empty()) << "not drained while an ACK is awaited";
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(50'000);
    ASSERT_EQ(asyncs.size(), 1u);
    EXPECT_EQ(asyncs[0].event_type, uint32_t(IBV_EVENT_SQ_DRAINED));
    EXPECT_EQ(asyncs[0].handle, qp.handle);
    a.client.to_state(qp, IBV_QPS_RTS);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x101, 1));
    puppet.send_ack(0x101, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// End-to-end credits (IBA 9.7.7.2): with none left one SEND may go ahead; a WRITE needs none.
TEST_F(Requester, CreditsHoldSendsBack) {
    join();
    a.client.post_send(qp, a.send(1, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    puppet.send_ack(0x100, 1, 0);  // ACK with credit code 0: none
    EXPECT_TRUE(puppet.listen(50'000).empty());
    for (uint64_t i = 2; i < 9; ++i) a.client.post_send(qp, a.send(i, 0, 10));
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x101, 1)) << "one probe";
    puppet.send_ack(0x101, 2, 2);  // two credits
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x102, 3)) << "two, and a probe";
    puppet.send_ack(0x104, 5, 31);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x105, 3)) << "no credits counted: no limit";
    puppet.send_ack(0x107, 8, 31);
    EXPECT_EQ(a.wait(8).size(), 8u);
}

}  // namespace
}  // namespace roci::sim
