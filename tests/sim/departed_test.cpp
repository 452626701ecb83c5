// Tests of removed QPs. If the ACK of the last message is lost and the program has destroyed its QP, the engine must acknowledge
// the repeated message, and nothing else.
#include "engine/departed.hpp"

#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

struct LostAck : PairTest {
    bool deaf = true;  ///< the network drops all frames of host 1
    LostAck() {
        world.net().set_script([this](const Sent& s) { return Verdict{deaf && s.from == 1 ? Verdict::drop : Verdict::pass}; });
    }
    void send_one_and_depart() {
        b.client.post_recv(qb, 1, {b.sge(0, 5000)});
        fill(a.mr.data(), 5000, 3);
        ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 5000)));
        ASSERT_EQ(b.wait(1).size(), 1u);
        EXPECT_EQ(first_wrong(b.mr.data(), 5000, 3), -1);
        world.run_for(20'000);
        b.client.destroy_qp(qb);
        world.run_for(20'000);
    }
    uint64_t answers() { return world.host(1).counter(engine::Counter::acknowledged_again); }
};

TEST_F(LostAck, TheLastMessageSucceedsAlthoughTheReceiverIsGone) {
    join();
    send_one_and_depart();
    deaf = false;
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_GE(answers(), 1u);
}

TEST_F(LostAck, AMessageThatTheReceiverHasNotExecutedFails) {
    join();
    send_one_and_depart();
    ASSERT_TRUE(a.client.post_send(qa, a.send(2, 0, 100)));
    deaf = false;
    const auto got = a.wait(2);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got[0].status, WcStatus::success);
    EXPECT_EQ(got[1].status, WcStatus::retry_exc_err);
}

TEST_F(LostAck, AReadWithoutReceiverFails) {
    join();
    ASSERT_TRUE(a.client.post_send(qa, a.rdma(WrOpcode::rdma_read, 1, 0, 100, b.mr.address(), b.mr.rkey)));
    world.run_for(20'000);
    b.client.destroy_qp(qb);
    deaf = false;
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    EXPECT_EQ(answers(), 0u);
}

TEST_F(LostAck, AQpThatWasInErrorIsNotRemembered) {
    join();
    b.client.post_recv(qb, 1, {b.sge(0, 5000)});
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 5000)));
    ASSERT_EQ(b.wait(1).size(), 1u);
    world.run_for(20'000);
    b.client.to_state(qb, IBV_QPS_ERR);
    b.client.destroy_qp(qb);
    deaf = false;
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    EXPECT_EQ(answers(), 0u);
}

TEST_F(LostAck, ARemovedQpIsForgotten) {
    PathOptions path;
    path.timeout = 19;  // 2.1 s
    join(path);
    send_one_and_depart();
    world.run_for(engine::DepartedQps::kRemembered);
    deaf = false;
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    EXPECT_EQ(answers(), 0u);
}

/// The peer is a puppet, which repeats the message of a removed QP.
struct Repeated : Responder {
    static constexpr uint32_t kRepeats = 40;
    void depart() {
        join();
        recv(5, 0, 200);
        send_only(first, 100, 3);
        EXPECT_TRUE(is_ack(answer()));
        a.poll_all();
        a.client.destroy_qp(qp);
    }
    uint64_t answers() { return world.host(0).counter(engine::Counter::acknowledged_again); }
};

TEST_F(Repeated, AreAcknowledgedWithTheLastExecutedPsn) {
    depart();
    send_only(first, 100, 3);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last.at(0).psn(), first);
    EXPECT_EQ(last.at(0).packet.msn.value, 1u);
}

TEST_F(Repeated, AreNotAcknowledgedWithoutLimit) {
    depart();
    for (uint32_t i = 0; i < kRepeats; ++i) send_only(first, 100, 3);
    EXPECT_EQ(puppet.listen().size(), engine::DepartedQps::kMostAnswers);
    EXPECT_EQ(world.host(0).counter(engine::Counter::unknown_qp), kRepeats - engine::DepartedQps::kMostAnswers);
}

TEST_F(Repeated, OfAnotherKindAreDropped) {
    depart();
    const uint8_t send = wire::make_opcode(wire::Service::rc, Operation::send_only);
    auto h = at(first);
    auto wrong_pkey = h, ahead = h, silent = h;
    wrong_pkey.pkey = 0x1234;
    ahead.psn = h.psn + 1;
    silent.ack_request = false;
    for (const auto& wrong : {wrong_pkey, ahead, silent}) puppet.send_raw(puppet.build(send, wrong, bytes_of(100, 3)));
    puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::uc, Operation::send_only), h, bytes_of(100, 3)));
    puppet.send(Operation::read_request, h);
    puppet.send(Operation::fetch_add, h);
    EXPECT_TRUE(puppet.listen().empty());
    EXPECT_EQ(answers(), 0u);
    EXPECT_EQ(world.host(0).counter(engine::Counter::unknown_qp), 6u);
}

/// A QP number is used again. Only the last QP with this number is remembered.
TEST_F(Repeated, OfTheLastQpWithTheNumberAreAcknowledged) {
    join();
    recv(5, 0, 200);
    send_only(first, 100, 3);
    ASSERT_TRUE(is_ack(answer()));
    const auto frame = puppet.build(wire::make_opcode(wire::Service::rc, Operation::send_only), at(first + 1), bytes_of(100, 3));
    wire::Packet p;
    ASSERT_EQ(wire::parse(frame.data(), uint32_t(frame.size()), p), wire::Verdict::ok);
    const qp::Qp& state = *world.host(0).shared().qps.find(qp.qpn);
    engine::DepartedQps departed;
    departed.add(state, 1);
    EXPECT_EQ(departed.answer_to(p, 0, 2), nullptr) << "not executed yet";
    recv(6, 0, 200);
    send_only(first + 1, 100, 3);
    ASSERT_TRUE(is_ack(answer()));
    departed.add(state, 3);
    const engine::Departed* d = departed.answer_to(p, 0, 4);
    ASSERT_NE(d, nullptr);
    EXPECT_EQ(d->expected, Psn(first + 2));
    for (uint32_t i = 0; i < 300; ++i) departed.add(state, 5);
    EXPECT_NE(departed.answer_to(p, 0, 6), nullptr);
    EXPECT_EQ(departed.answer_to(p, 1, 6), nullptr) << "another port";
}

}  // namespace
}  // namespace roci::sim
