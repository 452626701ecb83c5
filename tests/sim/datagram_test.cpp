// Tests of UD and UC, the services without acknowledgements. A lost packet must lose only its own message.
#include "datagram_fixture.hpp"

namespace roci::sim {
namespace {

TEST_F(UdTest, ArrivesBehindTheGrh) {
    b.client.post_recv(ub, 1, {b.sge(0, 140)});
    fill(a.mr.data(), 100, 4);
    a.client.post_send(ua, datagram(5, 100));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    const auto got = b.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].byte_len, 140u);
    EXPECT_EQ(got[0].src_qp, ua.qpn);
    EXPECT_EQ(got[0].wc_flags & abi::kWcGrh, abi::kWcGrh);
    EXPECT_EQ(first_wrong(b.mr.data() + 40, 100, 4), -1);
    EXPECT_EQ(b.mr.data()[20] >> 4, 4) << "IPv4 header in the last 20 bytes of the GRH (A17.4.5.2)";
    EXPECT_EQ(got[0].sl, 2) << "as NICs do, and as UCX wants it: IPv4";
}

TEST_F(UdTest, AnIpv6HeaderFillsTheGrh) {
    b.client.post_recv(ub, 1, {b.sge(0, 140)});
    SendWr w = datagram(5, 100);
    w.ah = a.client.create_ah(a.pd, b.client.self(ub, 1), 1);
    a.client.post_send(ua, w);
    const auto got = b.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(b.mr.data()[0] >> 4, 6);
    EXPECT_EQ(got[0].sl, 1);
}

TEST_F(UdTest, WhatCannotBeReceivedIsDroppedAndTheNextOneArrives) {
    a.client.post_send(ua, datagram(1, 100));  // no receive is posted
    EXPECT_EQ(a.wait_status(), WcStatus::success) << "a datagram is done when it is sent";
    world.run_for(100'000);
    b.client.post_recv(ub, 2, {b.sge(0, 200)});
    a.client.post_send(ua, datagram(3, 100, kQkey + 1));  // the wrong Q_Key
    world.run_for(100'000);
    EXPECT_TRUE(b.poll_all().empty());
    a.client.post_send(ua, datagram(4, 100));
    EXPECT_EQ(b.wait(1).size(), 1u);
    EXPECT_EQ(b.client.query(ub).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

TEST_F(UdTest, ABufferTooSmallIsNotWrittenBeyond) {
    b.client.post_recv(ub, 1, {b.sge(0, 60)});
    std::memset(b.mr.data(), 0x5a, 200);
    a.client.post_send(ua, datagram(1, 100));
    world.run_for(100'000);
    for (uint32_t i = 60; i < 200; ++i) EXPECT_EQ(b.mr.data()[i], 0x5a);
}

TEST_F(UdTest, LongerThanThePathMtuIsRefused) {
    a.client.post_send(ua, datagram(1, 5000));
    EXPECT_EQ(a.wait_status(), WcStatus::loc_len_err);
}

// An error of a send request stops only the send queue of a UD QP (IBA 10.3.1.6). The send queue is flushed, and
// receives still work.
TEST_F(UdTest, BadAddressHandleStopsTheSendQueueOnly) {
    SendWr w = datagram(1, 10);
    w.ah = 9999;
    a.client.post_send(ua, w);
    const auto done = a.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_NE(done[0].status, WcStatus::success);
    EXPECT_EQ(a.client.query(ua).attr.qp_state, uint32_t(IBV_QPS_SQE));
    b.client.post_recv(ub, 1, {b.sge(0, 200)});
    a.client.post_send(ua, datagram(2, 10));
    EXPECT_EQ(a.wait_status(), WcStatus::wr_flush_err);
    a.client.post_recv(ua, 3, {a.sge(0, 200)});
    SendWr answer = b.send(4, 0, 100);
    answer.ah = b.client.create_ah(b.pd, a.client.self(ua));
    answer.remote_qpn = ua.qpn;
    answer.remote_qkey = kQkey;
    fill(b.mr.data(), 100, 6);
    b.client.post_send(ub, answer);
    EXPECT_EQ(b.wait_status(), WcStatus::success);
    const auto got = a.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].wr_id, 3u);
    EXPECT_EQ(got[0].status, WcStatus::success);
    EXPECT_EQ(first_wrong(a.mr.data() + 40, 100, 6), -1);
    EXPECT_EQ(a.client.query(ua).attr.qp_state, uint32_t(IBV_QPS_SQE));
    EXPECT_TRUE(b.poll_all().empty()) << "the flushed datagram was not sent";
    a.client.to_state(ua, IBV_QPS_RTS);
    a.client.post_send(ua, datagram(5, 10));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(b.wait(1).size(), 1u);
}

// A UC QP in RTS or SQE sends no acknowledgement, even if the peer requests one. An engine with such a request must
// still be able to become idle.
TEST(UcPeer, WhoAsksForAnAckGetsNone) {
    World world;
    Side a{world, world.host(0)};
    Puppet puppet(world);
    Qp& ua = a.qp({.type = IBV_QPT_UC});
    UcTest::ready(a, ua, puppet.peer());
    puppet.talk_to(a.client.self(ua));
    for (const bool broken : {false, true}) {
        if (broken) {
            SendWr w = a.send(9, 0, 10);
            w.opcode = WrOpcode::rdma_read;  // UC has no READ, so the QP changes to SQE, in which receives still work
            a.client.post_send(ua, w);
            EXPECT_NE(a.wait(1).at(0).status, WcStatus::success);
            EXPECT_EQ(a.client.query(ua).attr.qp_state, uint32_t(IBV_QPS_SQE));
        }
        a.client.post_recv(ua, 1, {a.sge(0, 100)});
        wire::TransportHeaders h;
        h.psn = Psn(broken ? 0xfffff1 : 0xfffff0);
        h.ack_request = true;
        h.dest_qp = Qpn{ua.qpn};
        puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::uc, wire::Operation::send_only), h, bytes_of(10, 1)));
        EXPECT_EQ(a.wait(1).at(0).status, WcStatus::success);
        EXPECT_TRUE(puppet.listen(1'000'000).empty());
        EXPECT_EQ(world.host(0).counter(engine::Counter::tx_frames), 0u);
        EXPECT_GT(world.host(0).engine(0).next_deadline(world.now()), world.now()) << "the engine may sleep";
    }
    a.client.close();
}

// A message with a missing packet is dropped as a whole. The next First or Only packet starts a new message (IBA 9.8.2.2).
TEST_F(UcTest, ALostPacketLosesItsMessageOnly) {
    for (uint64_t i = 0; i < 10; ++i) b.client.post_recv(ub, i, {b.sge(i * 4096, 4096)});
    uint32_t frame = 0;
    world.net().set_script([&](const Sent&) { return ++frame == 5 ? Verdict{Verdict::drop} : Verdict{}; });
    for (uint64_t i = 0; i < 4; ++i) {
        fill(a.mr.data() + i * 4096, 3000, i);
        a.client.post_send(ua, a.send(i, i * 4096, 3000));  // each message has 3 packets, so frame 5 is in message 1
    }
    const auto sent = a.wait(4);
    ASSERT_EQ(sent.size(), 4u);
    for (const auto& c : sent) EXPECT_EQ(c.status, WcStatus::success);
    world.run_for(100'000);
    const auto got = b.poll_all();
    constexpr uint64_t kArrive[] = {0, 2, 3};
    ASSERT_EQ(got.size(), std::size(kArrive));
    for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(got[i].status, WcStatus::success);
        EXPECT_EQ(got[i].byte_len, 3000u);
        EXPECT_EQ(got[i].wr_id, i) << "message 2 uses the receive of the incomplete message 1";
        EXPECT_EQ(first_wrong(b.mr.data() + got[i].wr_id * 4096, 3000, kArrive[i]), -1);
    }
    for (const Sent& s : world.net().capture()) EXPECT_EQ(s.from, 0u) << "UC answers nothing";
    EXPECT_EQ(b.client.query(ub).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

// The next SEND must use the receive of an incomplete SEND. A WRITE uses no receive, so it must complete none.
TEST_F(UcTest, AWriteCompletesNotTheReceiveOfABrokenSend) {
    b.client.post_recv(ub, 7, {b.sge(0, 4096)});
    uint32_t frame = 0;
    world.net().set_script([&](const Sent&) { return ++frame == 3 ? Verdict{Verdict::drop} : Verdict{}; });
    a.client.post_send(ua, a.send(1, 0, 3000));  // the last packet of this SEND is lost
    a.client.post_send(ua, a.rdma(WrOpcode::rdma_write, 2, 0, 100, b.mr.address() + 8192, b.mr.rkey));
    ASSERT_EQ(a.wait(2).size(), 2u);
    world.run_for(100'000);
    EXPECT_TRUE(b.poll_all().empty()) << "nothing was sent that takes a receive and arrived";
    a.client.post_send(ua, a.send(3, 0, 50));
    const auto got = b.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].wr_id, 7u);
    EXPECT_EQ(got[0].byte_len, 50u);
    EXPECT_EQ(got[0].opcode, abi::WcOpcode::recv);
}

TEST_F(UcTest, WritesToWhatIsNotAllowedAreDropped) {
    a.client.post_send(ua, a.rdma(WrOpcode::rdma_write, 1, 0, 100, b.mr.address(), b.mr.rkey ^ 1));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(100'000);
    fill(a.mr.data(), 100, 8);
    a.client.post_send(ua, a.rdma(WrOpcode::rdma_write, 2, 0, 100, b.mr.address(), b.mr.rkey));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(100'000);
    EXPECT_EQ(first_wrong(b.mr.data(), 100, 8), -1) << "the QP works on";
    a.client.post_send(ua, a.rdma(WrOpcode::rdma_read, 3, 0, 100, b.mr.address(), b.mr.rkey));
    EXPECT_EQ(a.wait_status(), WcStatus::loc_qp_op_err) << "UC has no READ";
}

}  // namespace
}  // namespace roci::sim
