// Tests of requests that a responder must refuse, and of its NAKs. The requester is a puppet, whose packets the test writes.
#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

// ---- sequence of opcodes (IBA 9.7.4.1.3) and lengths (IBA 9.7.4.1.6) ---------------------------------------------------

struct Step {
    Operation op;
    uint32_t bytes;
    uint32_t dma_length = 0;
};
struct BadRequest {
    const char* what;
    std::vector<Step> steps;
    uint8_t nak;
};

TEST_F(Responder, IllegalSuccessionsAndLengthsAreNaked) {
    const uint32_t m = kMtu;
    using O = Operation;
    const BadRequest cases[] = {
        {"SEND Middle without a First", {{O::send_middle, m}}, kNakInvalid},
        {"SEND Last without a First", {{O::send_last, 10}}, kNakInvalid},
        {"WRITE Middle without a First", {{O::write_middle, m}}, kNakInvalid},
        {"WRITE Last without a First", {{O::write_last, 10}}, kNakInvalid},
        {"SEND First twice", {{O::send_first, m}, {O::send_first, m}}, kNakInvalid},
        {"SEND Only within a message", {{O::send_first, m}, {O::send_only, 10}}, kNakInvalid},
        {"WRITE Only within a SEND", {{O::send_first, m}, {O::write_only, 10, 10}}, kNakInvalid},
        {"READ within a SEND", {{O::send_first, m}, {O::read_request, 0, 10}}, kNakInvalid},
        {"WRITE Middle within a SEND", {{O::send_first, m}, {O::write_middle, m}}, kNakInvalid},
        {"SEND Last within a WRITE", {{O::write_first, m, m + 10}, {O::send_last, 10}}, kNakInvalid},
        {"First shorter than the MTU", {{O::send_first, m - 4}}, kNakInvalid},
        {"Middle shorter than the MTU", {{O::send_first, m}, {O::send_middle, 4}}, kNakInvalid},
        {"Only longer than the MTU", {{O::send_only, m + 4}}, kNakInvalid},
        {"Last without payload", {{O::send_first, m}, {O::send_last, 0}}, kNakInvalid},
        {"WRITE Only shorter than its length", {{O::write_only, 10, 20}}, kNakInvalid},
        {"WRITE Only longer than its length", {{O::write_only, 20, 10}}, kNakInvalid},
        {"WRITE that ends early", {{O::write_first, m, 3 * m}, {O::write_last, 10}}, kNakInvalid},
        {"WRITE that goes on too long", {{O::write_first, m, m + 4}, {O::write_middle, m}}, kNakInvalid},
        {"WRITE of more than 2^31 bytes", {{O::write_first, m, 0x80000001}}, kNakInvalid},
    };
    for (const BadRequest& c : cases) {
        SCOPED_TRACE(c.what);
        Qp& q = a.qp();
        connect(a.client, q, puppet, path);
        ASSERT_TRUE(a.client.post_recv(q, 1, {a.sge(0, 16 * m)}));
        uint32_t psn = first;
        for (const Step& s : c.steps)
            puppet.send(s.op, write_at(psn++, a.mr.address(), a.mr.rkey, s.dma_length, false), bytes_of(s.bytes, 1));
        const auto got = puppet.listen(50'000);
        ASSERT_FALSE(got.empty());
        EXPECT_EQ(got.back().packet.syndrome, c.nak);
        EXPECT_EQ(got.back().psn(), psn - 1);
        EXPECT_EQ(a.client.query(q).attr.qp_state, uint32_t(IBV_QPS_ERR));
        const auto done = a.poll_all();
        ASSERT_EQ(done.size(), 1u);
        EXPECT_NE(done[0].status, WcStatus::success);
    }
}

TEST_F(Responder, SendLongerThanTheReceiveBuffer) {
    join();
    recv(1, 0, 99);
    send_only(first, 100, 1);
    EXPECT_EQ(answer(), kNakInvalid);
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::loc_len_err);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR));
}

TEST_F(Responder, ReceiveBufferThatIsNotOurs) {
    join();
    ASSERT_TRUE(a.client.post_recv(qp, 1, {{a.mr.address(), 100, a.mr.lkey ^ 0x55}}));
    send_only(first, 50, 1);
    EXPECT_EQ(answer(), kNakOperational);
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::loc_prot_err);
}

// ---- RNR ------------------------------------------------------------------------------------------------------------

// If there is no receive WQE, the responder sends an RNR NAK with the timer value of the QP. After a receive is
// posted, the repeated request must succeed (IBA 9.7.5.2.8).
TEST_F(Responder, NotReadyThenReady) {
    path.min_rnr_timer = 12;
    join();
    send_only(first, 50, 1);
    EXPECT_EQ(answer(), rnr_nak(12));
    EXPECT_EQ(last[0].psn(), first);
    send_only(first + 1, 50, 2);
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "silent about what follows";
    send_only(first, 50, 1);
    EXPECT_EQ(answer(), rnr_nak(12)) << "asked again, not ready again";
    recv(1, 0, 100);
    send_only(first, 50, 1);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(a.poll_all().size(), 1u);
    EXPECT_EQ(first_wrong(a.mr.data(), 50, 1), -1);
}

TEST_F(Responder, WriteWithImmediateNeedsAReceiveAtItsEnd) {
    join();
    puppet.send(Operation::write_first, write_at(first, a.mr.address(), a.mr.rkey, kMtu + 10, false), bytes_of(kMtu, 1));
    auto end = at(first + 1);
    end.imm_be = 0x99;
    puppet.send(Operation::write_last_imm, end, bytes_of(10, 2));
    EXPECT_EQ(answer(), rnr_nak(1));
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 1) << "the First was executed";
    recv(1, 8192, 100);
    puppet.send(Operation::write_last_imm, end, bytes_of(10, 2));
    EXPECT_TRUE(is_ack(answer()));
    const auto done = a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].opcode, abi::WcOpcode::recv_rdma_with_imm);
    EXPECT_EQ(done[0].byte_len, kMtu + 10);
    EXPECT_EQ(done[0].imm_or_inv, 0x99u);
    EXPECT_EQ(first_wrong(a.mr.data(), kMtu, 1), -1);
    EXPECT_EQ(first_wrong(a.mr.data() + kMtu, 10, 2), -1);
}

}  // namespace
}  // namespace roci::sim
