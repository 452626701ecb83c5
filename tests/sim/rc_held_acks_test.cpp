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

}  // namespace
}  // namespace roci::sim
