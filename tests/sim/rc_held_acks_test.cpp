// Tests of an ACK that waits for the program's answer, so that both leave in one burst. Only ports that prefer several frames
// per burst hold back ACKs.
#include "fixture.hpp"

namespace roci::sim {
namespace {

struct HeldAcks : PairTest {
    explicit HeldAcks(uint32_t best_burst = 64) : PairTest({.best_burst = best_burst}) {}

    /// Sends a message from `from` to `to` and runs the world until the receiver has the completion.
    void pass(Side& from, Qp& q, Side& to, Qp& peer) {
        ASSERT_TRUE(to.client.post_recv(peer, 1, {to.sge(0, 64)}));
        ASSERT_TRUE(from.client.post_send(q, from.send(2, 0, 64)));
        world.run_until([&] {
            for (auto e = to.client.poll(to.cq); e; e = to.client.poll(to.cq))
                if (e->wr_id == 1) return true;
            return false;
        });
    }
    /// Passes a message to b, a message back to a, and another message to b. Afterwards the engine of b assumes that b
    /// answers messages. So its ACK of the last message may wait for the answer.
    void converse() {
        join();
        pass(a, qa, b, qb);
        pass(b, qb, a, qa);
        world.run_idle();
        world.net().clear_capture();
        pass(a, qa, b, qb);
    }
    void post_long_read(Qp& reader) {
        ASSERT_TRUE(a.client.post_send(reader, a.rdma(WrOpcode::rdma_read, 9, 100, 900'000, b.mr.address() + 100, b.mr.rkey)));
    }
    /// Returns the operations of the frames that b has sent to qa, in this order.
    std::vector<Operation> sent_to_a() {
        std::vector<Operation> order;
        for (const Sent& s : world.net().capture())
            if (s.from == world.host(1).endpoint(0) && s.packet.dest_qp == Qpn{qa.qpn})
                order.push_back(wire::operation_of(s.packet.opcode));
        return order;
    }
    /// Returns the times at which b has sent frames with the operation.
    std::vector<Nanos> sent_by_b(Operation op) {
        std::vector<Nanos> times;
        for (const Sent& s : world.net().capture())
            if (s.from == world.host(1).endpoint(0) && wire::operation_of(s.packet.opcode) == op) times.push_back(s.when);
        return times;
    }
};

TEST_F(HeldAcks, TheAckLeavesWithTheAnswer) {
    converse();
    for (int i = 0; i < 3; ++i) world.run_engines();  // the program needs a few rounds
    EXPECT_TRUE(sent_by_b(Operation::ack).empty());
    pass(b, qb, a, qa);
    const auto acks = sent_by_b(Operation::ack), answers = sent_by_b(Operation::send_only);
    ASSERT_EQ(acks.size(), 1u);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(acks[0], answers[0]);
}

// The program posts its answer in the middle of a round, at any time at which the responses to READs need transmit buffers. One
// of these times is after the responder has held back the ACK again, and before the turn of the requester that sends the answer.
TEST_F(HeldAcks, AnAnswerThatIsPostedDuringARoundDoesNotPassTheAck) {
    Qp &reader = a.qp(), &read = b.qp();
    connect(a.client, reader, b.client, read, {});
    join();
    int before_ack = 0;
    for (int time = 0; time < 10; ++time) {
        SCOPED_TRACE(time);
        pass(b, qb, a, qa);
        ASSERT_TRUE(a.client.post_recv(qa, 4, {a.sge(0, 64)}));
        post_long_read(reader);
        world.net().clear_capture();
        pass(a, qa, b, qb);
        int allocations = 0;
        world.net().set_on_alloc([&](uint32_t endpoint) {
            if (endpoint != world.host(1).endpoint(0) || allocations++ != time) return;
            before_ack += sent_to_a().empty();
            EXPECT_TRUE(b.client.post_send(qb, b.send(6, 0, 64)));
        });
        world.run_idle();
        world.net().set_on_alloc({});
        a.poll_all();
        ASSERT_GT(allocations, time);
        EXPECT_EQ(sent_to_a(), (std::vector{Operation::ack, Operation::send_only}));
    }
    EXPECT_GT(before_ack, 0);
}

TEST_F(HeldAcks, WithoutAnAnswerTheAckLeavesAfterAFewRounds) {
    converse();
    const Nanos received = world.now();
    world.run_idle();
    const auto acks = sent_by_b(Operation::ack);
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_LT(acks[0] - received, 10'000u);
}

TEST_F(HeldAcks, AProgramThatOnlyReceivesIsAcknowledgedAtOnce) {
    join();
    pass(a, qa, b, qb);
    world.run_engines();
    EXPECT_EQ(sent_by_b(Operation::ack).size(), 1u);
}

struct CheapBursts : HeldAcks {
    CheapBursts() : HeldAcks(1) {}
};

TEST_F(CheapBursts, NoAckWaits) {
    converse();
    world.run_engines();
    EXPECT_EQ(sent_by_b(Operation::ack).size(), 1u);
}

// Responders get half of a round while requesters wait. The responses to a long READ use up this half, so the responder of the
// answering QP may have no turn in the round in which its requester sends the answer.
TEST_F(CheapBursts, AnAnswerDoesNotPassTheAckNextToALongRead) {
    Qp &reader = a.qp(), &read = b.qp();
    connect(a.client, reader, b.client, read, {});
    join();
    for (int rounds = 0; rounds < 10; ++rounds) {
        SCOPED_TRACE(rounds);
        ASSERT_TRUE(a.client.post_recv(qa, 4, {a.sge(0, 64)}));
        post_long_read(reader);
        for (int i = 0; i < rounds; ++i) world.run_engines();
        world.net().clear_capture();
        pass(a, qa, b, qb);
        ASSERT_TRUE(b.client.post_send(qb, b.send(6, 0, 64)));
        world.run_idle();
        a.poll_all();
        b.poll_all();
        EXPECT_EQ(sent_to_a(), (std::vector{Operation::ack, Operation::send_only}));
    }
}

}  // namespace
}  // namespace roci::sim
