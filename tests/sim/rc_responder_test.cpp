// Tests of a responder: order, acknowledgements, and frames for other QPs. The requester is a puppet, whose packets the test
// writes.
#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

TEST_F(Responder, AcknowledgesAndCompletes) {
    join();
    recv(5, 0, 200);
    send_only(first, 100, 3);
    EXPECT_TRUE(is_ack(answer()));
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first);
    EXPECT_EQ(last[0].packet.msn.value, 1u);
    EXPECT_TRUE(last[0].packet.mig_req);
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 5u);
    EXPECT_EQ(done[0].byte_len, 100u);
    EXPECT_EQ(done[0].opcode, abi::WcOpcode::recv);
    EXPECT_EQ(done[0].qpn, qp.qpn);
    EXPECT_EQ(first_wrong(a.mr.data(), 100, 3), -1);
}

// The responder must acknowledge the last message even if the program destroys the QP right after the completion.
TEST_F(Responder, AcknowledgesAMessageWhoseQpIsDestroyedAtOnce) {
    join();
    recv(5, 0, 200);
    send_only(first, 100, 3);
    std::vector<abi::Cqe> done;
    world.run_until([&] { return !(done = a.poll_all()).empty(); });
    a.client.destroy_qp(qp);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last.at(0).psn(), first);
}

// The responder must acknowledge the last message even if the program moves the QP to RESET right after the
// completion.
TEST_F(Responder, AcknowledgesAMessageWhoseQpIsResetAtOnce) {
    join();
    recv(5, 0, 200);
    send_only(first, 100, 3);
    world.run_until([&] { return !a.poll_all().empty(); });
    ASSERT_EQ(a.client.try_modify(qp, IBV_QP_STATE, {.qp_state = IBV_QPS_RESET}), 0);
    EXPECT_TRUE(is_ack(answer()));
}

TEST_F(Responder, ImmediateAndSolicitedArriveWithTheCompletion) {
    join();
    recv(5, 0, 200);
    auto h = at(first);
    h.imm_be = 0x01020304;
    puppet.send(Operation::send_only_imm, h, bytes_of(7, 1));
    EXPECT_TRUE(is_ack(answer()));
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wc_flags & abi::kWcWithImm, abi::kWcWithImm);
    EXPECT_EQ(done[0].imm_or_inv, 0x01020304u);
}

struct ResponderThatKeepsNothing : Responder {
    ResponderThatKeepsNothing() : Responder(keeps_nothing()) {}
};

// After a gap the responder sends one sequence NAK with the expected PSN. It then sends nothing until the packet with
// this PSN arrives (C9-113).
TEST_F(ResponderThatKeepsNothing, OneSequenceNakForAGap) {
    join();
    for (uint64_t i = 0; i < 8; ++i) recv(i, i * 100, 100);
    send_only(first, 10, 0);
    EXPECT_TRUE(is_ack(answer()));
    for (uint32_t i = 2; i < 6; ++i) send_only(first + i, 10, i);
    EXPECT_EQ(answer(), kNakSequence);
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 1);
    EXPECT_EQ(a.poll_all().size(), 1u) << "nothing behind the gap is executed";
    send_only(first + 7, 10, 7);
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "still silent";
    send_only(first + 1, 10, 1);
    EXPECT_TRUE(is_ack(answer()));
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 1);
    send_only(first + 3, 10, 3);  // a new gap causes a new NAK
    EXPECT_EQ(answer(), kNakSequence);
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 2);
}

// The responder must acknowledge a duplicate again, but must not execute it again. The acknowledged PSN must never
// decrease (C9-105).
TEST_F(Responder, DuplicatesAreAcknowledgedAndNotExecuted) {
    join();
    for (uint64_t i = 0; i < 4; ++i) recv(i, i * 100, 100);
    for (uint32_t i = 0; i < 3; ++i) send_only(first + i, 10, i);
    puppet.listen(50'000);
    EXPECT_EQ(a.poll_all().size(), 3u);
    const uint8_t before = a.mr.data()[0];
    send_only(first, 10, 77);
    EXPECT_TRUE(is_ack(answer()));
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 2) << "the newest PSN, never an older one";
    EXPECT_EQ(last[0].packet.msn.value, 3u);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(a.mr.data()[0], before);
    send_only(first + 3, 10, 3);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(a.poll_all().size(), 1u);
}

TEST_F(Responder, AcksNeverRegressInAStormOfDuplicatesAndGaps) {
    join();
    Rng rng(4711);
    for (uint64_t i = 0; i < 60; ++i) recv(i, i * 100, 100);
    uint32_t next = 0;
    for (int i = 0; i < 400 && next < 60; ++i) {
        const uint32_t psn = rng.chance(0.3) ? next : uint32_t(rng.below(next + 5));
        send_only(first + psn, 10, psn);
        if (psn == next) ++next;
    }
    uint32_t newest = first - 1;
    for (const auto& g : puppet.listen(1'000'000)) {
        const bool nak = g.packet.syndrome == kNakSequence;
        const uint32_t acknowledged = nak ? g.psn() - 1 : g.psn();
        EXPECT_GE(int32_t(acknowledged - newest), 0) << "went back";
        newest = acknowledged;
    }
    EXPECT_EQ(newest, first + next - 1);
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), next);
    for (uint32_t i = 0; i < next; ++i) EXPECT_EQ(done[i].wr_id, i);
}

TEST_F(Responder, ExpectedPsnWraps) {
    path.peer_psn = 0xffffff;
    join();
    recv(1, 0, 100);
    recv(2, 100, 100);
    send_only(0xffffff, 10, 1);
    send_only(0, 10, 2);
    const auto got = puppet.listen(50'000);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.back().psn(), 0u);
    EXPECT_EQ(a.poll_all().size(), 2u);
}

// ---- frames that are not for this QP ----------------------------------------------------------------------------------

TEST_F(Responder, FramesThatDoNotBelongAreDroppedInSilence) {
    join();
    recv(1, 0, 100);
    const auto op = wire::make_opcode(wire::Service::rc, Operation::send_only);
    auto wrong_qp = at(first);
    wrong_qp.dest_qp = Qpn{0xabcdef};
    puppet.send_raw(puppet.build(op, wrong_qp, bytes_of(10, 1)));
    auto wrong_pkey = at(first);
    wrong_pkey.pkey = 0x1234;
    puppet.send_raw(puppet.build(op, wrong_pkey, bytes_of(10, 1)));
    puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::uc, Operation::send_only), at(first), bytes_of(10, 1)));
    puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::ud, Operation::send_only), at(first), bytes_of(10, 1)));
    auto broken = puppet.build(op, at(first), bytes_of(10, 1));
    broken.back() ^= 1;  // the ICRC is now wrong
    puppet.send_raw(broken);
    auto cut = puppet.build(op, at(first), bytes_of(10, 1));
    cut.resize(cut.size() - 7);
    puppet.send_raw(cut);
    EXPECT_TRUE(puppet.listen(100'000).empty());
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(world.host(0).counter(engine::Counter::unknown_qp), 1u);
    EXPECT_EQ(world.host(0).counter(engine::Counter::wrong_pkey), 1u);
    EXPECT_EQ(world.host(0).counter(engine::Counter::wrong_service), 2u);
    EXPECT_EQ(world.host(0).counter(wire::Verdict::bad_icrc), 1u);
    send_only(first, 10, 1);
    EXPECT_TRUE(is_ack(answer()));
}

TEST_F(Responder, APacketFromAnotherAddressIsNotOurPeers) {
    join();
    recv(1, 0, 100);
    const Peer real = a.client.self(qp);
    Puppet stranger(world);  // its frame has the MAC address of the peer, but another IP address
    wire::PathSpec s;
    s.source_mac = stranger.peer().mac;
    s.dest_mac = real.mac;
    const uint8_t other[4] = {10, 9, 9, 9};
    s.source_gid = Gid::from_ipv4(other);
    s.dest_gid = real.gid;
    const auto forged_path = wire::make_path(s);
    std::vector<uint8_t> frame(wire::kMaxOverhead + 16);
    auto h = at(first);
    h.opcode = wire::make_opcode(wire::Service::rc, Operation::send_only);
    h.dest_qp = Qpn{qp.qpn};
    uint8_t* p = wire::begin_frame(frame.data(), forged_path, h, 16);
    frame.resize(wire::finish_frame(frame.data(), forged_path, p, 16));
    world.net().inject(world.host(0).endpoint(0), frame);
    world.run_for(100'000);
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(world.host(0).counter(engine::Counter::wrong_address), 1u);
}

TEST_F(Responder, QpsThatDoNotReceiveStaySilent) {
    Qp& reset = a.qp();
    Qp& init = a.qp();
    Qp& dead = a.qp();
    a.client.to_init(init);
    connect(a.client, dead, puppet, path);
    a.client.to_state(dead, IBV_QPS_ERR);
    for (Qp* q : {&reset, &init, &dead}) {
        puppet.talk_to(a.client.self(*q));
        send_only(first, 10, 1);
    }
    EXPECT_TRUE(puppet.listen(100'000).empty());
    EXPECT_EQ(world.host(0).counter(engine::Counter::wrong_state), 3u);
}

TEST_F(Responder, ReadyToReceiveAnswersBeforeReadyToSend) {
    a.client.to_init(qp);
    a.client.to_rtr(qp, path, puppet.peer());
    puppet.talk_to(a.client.self(qp));
    recv(1, 0, 100);
    send_only(first, 10, 1);
    EXPECT_TRUE(is_ack(answer()));
    const auto& asyncs = a.client.host().platform().asyncs[a.client.session()];
    ASSERT_EQ(asyncs.size(), 1u);
    EXPECT_EQ(asyncs[0].event_type, uint32_t(IBV_EVENT_COMM_EST)) << "IBA 11.6.3.1";
    a.client.to_rts(qp, path);
    send_only(first + 1, 10, 1);
    EXPECT_EQ(answer(), rnr_nak(1));
}

}  // namespace
}  // namespace roci::sim
