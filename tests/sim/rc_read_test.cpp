// Tests of READs. The responder is a puppet, which sends only the packets that the test writes.
#include "read_fixture.hpp"

namespace roci::sim {
namespace {

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

struct ReadTestThatGoesBack : ReadTest {
    ReadTestThatGoesBack() : ReadTest({.hosts = 1, .engine = {.selective_repeat = false}}) {}
};

// A gap in the responses is an implied NAK. The requester repeats the READ from the first missing packet (IBA 9.7.5.1.1, C9-150).
TEST_F(ReadTestThatGoesBack, LostResponseIsAskedForAgainFromTheMissingPsn) {
    join();
    read(1, 5 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 5, 0, 1, 9);
    respond(0x100, 5, 3, 4, 9);  // response packet 2 is lost
    const auto again = puppet.listen(50'000);
    ASSERT_EQ(again.size(), 1u) << "once, not once a later response";
    EXPECT_EQ(again[0].psn(), 0x102u);
    EXPECT_EQ(again[0].op(), Operation::read_request);
    EXPECT_EQ(again[0].packet.va, 0x10000u + 2 * kMtu);
    EXPECT_EQ(again[0].packet.dma_length, 3 * kMtu);
    respond(0x102, 3, 0, 2, 0);
    // The bytes from offset 2 MTU on come from the second response.
    auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::success);
    EXPECT_EQ(done[0].byte_len, 5 * kMtu);
    EXPECT_EQ(first_wrong(a.mr.data(), 2 * kMtu, 9), -1);
    EXPECT_EQ(first_wrong(a.mr.data() + 2 * kMtu, 3 * kMtu, 0), -1);
}

/// The requester must keep later responses and request only the missing response. The READ must complete when the
/// missing response arrives.
TEST_F(ReadTest, OnlyTheHolesAreAskedFor) {
    join();
    read(1, 7 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 7, 0, 1, 9);
    respond(0x100, 7, 3, 6, 9);  // response packet 2 is lost
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), range(0x102, 1));
    EXPECT_EQ(again[0].op(), Operation::read_request);
    EXPECT_EQ(again[0].packet.va, 0x10000u + 2 * kMtu);
    EXPECT_EQ(again[0].packet.dma_length, kMtu);
    wire::TransportHeaders h;
    h.psn = Psn(0x102);
    h.syndrome = 31;
    std::vector<uint8_t> p(kMtu);
    for (uint32_t k = 0; k < kMtu; ++k) p[k] = pattern_byte(9, uint64_t{2} * kMtu + k);
    puppet.send(Operation::read_response_only, h, p);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data(), 7 * kMtu, 9), -1);
}

/// The requester must request a second missing response before the first missing response has arrived. It must
/// request each of them only once.
TEST_F(ReadTest, AHoleIsAskedForWhileAnotherIsRepaired) {
    join();
    read(1, 16 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 16, 0, 1, 9);
    respond(0x100, 16, 3, 6, 9);  // response packet 2 is lost
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x102, 1));
    respond(0x100, 16, 8, 12, 9);  // response packet 7 is lost, too
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), range(0x107, 1));
    EXPECT_EQ(again[0].packet.dma_length, kMtu);
    respond_part(0x102, 2, 9);
    EXPECT_EQ(puppet.listen(10'000).size(), 0u) << "the second answer is on its way";
    respond_part(0x107, 7, 9);
    respond(0x100, 16, 13, 15, 9);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data(), 16 * kMtu, 9), -1);
}

/// Response packet 0 of a READ is lost, requested again, and lost again. After the repeated request, another READ is posted. The
/// response to this READ shows the second loss. Later responses of the first READ do not show the second loss.
TEST_F(ReadTest, WhatWasSentLaterShowsThatTheAnswerIsLost) {
    join();
    read(1, 8 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 8, 1, 5, 9);  // response packet 0 is lost
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    read(2, kMtu, 8 * kMtu);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x108, 1));
    respond(0x100, 8, 6, 7, 9);
    ASSERT_EQ(puppet.listen(10'000).size(), 0u) << "they were sent before";
    respond(0x108, 1, 0, 0, 9, 2);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    respond_part(0x100, 0, 9);
    EXPECT_EQ(a.wait(2).size(), 2u);
}

/// While a response of the first READ is missing, a NAK reports the third READ as missing. After the missing response
/// has arrived, the requester must repeat the third READ.
TEST_F(ReadTest, ANakBehindAMissingResponseIsKept) {
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 4 * kMtu, i * 4 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 3u);
    respond(0x100, 4, 0, 0, 9);
    respond(0x100, 4, 2, 3, 9);  // response packet 1 is lost
    respond(0x104, 4, 0, 3, 9, 2);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x101, 1));
    puppet.send_ack(0x108, 2, kNakSequence);
    ASSERT_EQ(puppet.listen(10'000).size(), 0u) << "nobody knows whether the peer keeps packets";
    respond_part(0x101, 1, 9);
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), range(0x108, 1));
    EXPECT_EQ(again[0].packet.dma_length, 4 * kMtu);
    respond(0x108, 4, 0, 3, 9, 3);
    EXPECT_EQ(a.wait(3).size(), 3u);
}

/// The QP has learned that the peer keeps packets behind a gap. Therefore it must repeat a request at once after a
/// NAK, although a response is missing.
TEST_F(ReadTest, ALostRequestIsRepairedTogetherWithALostResponse) {
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 4 * kMtu, i * 4 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 3u);
    puppet.send_ack(0x100, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    respond(0x100, 4, 0, 3, 9);
    respond(0x104, 4, 0, 3, 9, 2);  // this READ was not repeated, so its response shows that the peer keeps packets
    respond(0x108, 4, 0, 3, 9, 3);
    ASSERT_EQ(a.wait(3).size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) read(i + 4, 4 * kMtu, i * 4 * kMtu);
    ASSERT_EQ(puppet.listen(5'000).size(), 3u);
    respond(0x10c, 4, 1, 3, 9, 4);  // response packet 0 is lost
    respond(0x110, 4, 0, 3, 9, 5);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x10c, 1));
    puppet.send_ack(0x114, 5, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x114, 1));
    respond_part(0x10c, 0, 9);
    EXPECT_EQ(puppet.listen(10'000).size(), 0u) << "the request is on its way";
    respond(0x114, 4, 0, 3, 9, 6);
    EXPECT_EQ(a.wait(3).size(), 3u);
}

/// The last response to a repeated READ does not show that the next READ is lost.
TEST_F(ReadTest, TheAnswerToARepeatedReadSaysNothingOfTheNextOne) {
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 2 * kMtu, i * 2 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 3u);
    puppet.send_ack(0x100, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    respond(0x100, 2, 0, 1, 9);
    EXPECT_EQ(puppet.listen(10'000).size(), 0u);
    respond(0x102, 2, 0, 1, 9, 2);
    respond(0x104, 2, 0, 1, 9, 3);
    EXPECT_EQ(a.wait(3).size(), 3u);
}

/// After the response to the repeated READ, no response to the next READ arrives. The requester must conclude that
/// the peer keeps no packets behind a gap, and must repeat the later READs.
TEST_F(ReadTest, SilenceBehindARepeatedReadShowsAPeerThatKeepsNothing) {
    join();
    for (uint32_t i = 0; i < 3; ++i) read(i + 1, 2 * kMtu, i * 2 * kMtu);
    ASSERT_EQ(puppet.listen(50'000).size(), 3u);
    puppet.send_ack(0x100, 0, kNakSequence);
    ASSERT_EQ(psns(puppet.listen(10'000)), range(0x100, 1));
    respond(0x100, 2, 0, 1, 9);
    EXPECT_EQ(psns(puppet.listen(90'000)), (std::vector<uint32_t>{0x102, 0x104}));
    respond(0x102, 2, 0, 1, 9, 2);
    respond(0x104, 2, 0, 1, 9, 3);
    EXPECT_EQ(a.wait(3).size(), 3u);
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

// A later response seems to show that the expected response is lost. Right after the later response, the expected response
// arrives. The requester must accept the expected response and request only responses that are still missing. Otherwise heavy
// reordering would use up the retries.
struct ReadTestThatKeepsNothing : ReadTest {
    ReadTestThatKeepsNothing() : ReadTest(keeps_nothing()) {}
};
TEST_F(ReadTestThatKeepsNothing, AwaitedResponseIsTakenAlthoughTheReadWasRolledBack) {
    join();
    // The links are so fast that both frames arrive at once.
    for (uint32_t end = 0; end < 2; ++end) world.net().link(end).bits_per_second = 1'000'000'000'000'000;
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

// An ACK of a later request means that the READ's response was lost (implied NAK). The ACK must not complete the READ.
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

// While a READ waits for its response, the peer sends NAKs for later gaps. These NAKs prove that the peer works. The
// QP must go back only once and use up only one retry.
TEST_F(ReadTestThatGoesBack, NaksBehindAMissingResponseTakeOneRetry) {
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

TEST_F(ReadTest, NaksBehindAMissingResponseTakeOneRetry) {
    path.retry_cnt = 2;
    path.timeout = 14;
    join();
    read(1, kMtu);
    for (uint64_t i = 0; i < 8; ++i) a.client.post_send(qp, a.send(10 + i, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 9u);
    for (uint32_t i = 1; i < 8; ++i) puppet.send_ack(0x101 + i, i, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x100, 1)) << "once, the READ alone";
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    respond(0x100, 1, 0, 0, 4);
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x108, 1)) << "what the last NAK names";
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

// A READ response whose PSN belongs to no request, or to a SEND, must not be written to memory.
TEST_F(ReadTest, UnsolicitedResponsesAreIgnored) {
    join();
    const std::vector<uint8_t> before(a.mr.data(), a.mr.data() + 8 * kMtu);
    respond(0x100, 3, 0, 2, 9);
    a.client.post_send(qp, a.send(1, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    respond(0x100, 1, 0, 0, 9);  // this PSN belongs to a SEND
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
    respond(0x100, 2, 0, 0, 1);  // the same PSN again, with other bytes
    respond(0x100, 2, 1, 1, 9);
    respond(0x100, 2, 0, 1, 1);
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    world.run_for(50'000);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(first_wrong(a.mr.data(), 2 * kMtu, 9), -1);
}

// A QP must not have more outstanding READs than max_rd_atomic (IBA 10.8.3.3).
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

// The longest READ at the smallest MTU takes 2^23 PSNs, which is the limit of outstanding PSNs (IBA 9.7.2). With one
// more outstanding PSN, the peer would treat a repetition of the oldest packet as a new packet.
TEST_F(ReadTest, TheLongestReadWaitsUntilNothingElseIsOutstanding) {
    constexpr uint32_t kBytes = 1u << 31, kSmallMtu = 256;
    path.mtu = IBV_MTU_256;
    join();
    const auto read_all = [&](uint64_t id, uint32_t bytes) {
        SendWr w = a.rdma(WrOpcode::rdma_read, id, 0, 10, 0x10000, 0x1234);
        w.sges.front().length = bytes;
        ASSERT_TRUE(a.client.post_send(qp, w));
    };
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, 10, 0x10000, 0x1234));
    read_all(2, kBytes);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x100, 1));
    puppet.send_ack(0x100, 1);
    const auto got = puppet.listen(50'000);
    ASSERT_EQ(psns(got), range(0x101, 1));
    EXPECT_EQ(got[0].packet.dma_length, kBytes);

    a.client.to_state(qp, IBV_QPS_RESET);
    join();
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, 10, 0x10000, 0x1234));
    read_all(2, kBytes - kSmallMtu);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x100, 2)) << "2^23 PSNs together";
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

}  // namespace
}  // namespace roci::sim
