// The responder against a puppet that plays the requester, well and badly.
#include "fixture.hpp"

namespace roci::sim {
namespace {

struct Responder : PuppetTest {
    uint32_t first = 0x100;
    void recv(uint64_t id, uint64_t offset, uint32_t length) { ASSERT_TRUE(a.client.post_recv(qp, id, {a.sge(offset, length)})); }
    wire::TransportHeaders at(uint32_t psn, bool ack_request = true) {
        wire::TransportHeaders h;
        h.psn = Psn(psn);
        h.ack_request = ack_request;
        return h;
    }
    wire::TransportHeaders write_at(uint32_t psn, uint64_t va, uint32_t rkey, uint32_t length, bool ack_request = true) {
        wire::TransportHeaders h = at(psn, ack_request);
        h.va = va;
        h.rkey = Key{rkey};
        h.dma_length = length;
        return h;
    }
    void send_only(uint32_t psn, uint32_t bytes, uint64_t tag, bool ack_request = true) {
        puppet.send(Operation::send_only, at(psn, ack_request), bytes_of(bytes, tag));
    }
    /// The one packet that comes back; its syndrome, or -1 (none or more than one).
    int answer() {
        last = puppet.listen(50'000);
        return last.size() == 1 && last[0].op() == Operation::ack ? last[0].packet.syndrome : -1;
    }
    static bool is_ack(int syndrome) { return syndrome >= 0 && syndrome < 0x20; }
    std::vector<Puppet::Got> last;
};

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

// A program that ends as soon as it has its last message owes the sender the acknowledgement all the same.
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

// The same of one that sends its QP back to RESET.
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

// C9-113: after a gap one sequence NAK that names the expected PSN, then silence until that PSN arrives.
TEST_F(Responder, OneSequenceNakForAGap) {
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
    send_only(first + 3, 10, 3);  // a new gap is a new NAK
    EXPECT_EQ(answer(), kNakSequence);
    ASSERT_EQ(last.size(), 1u);
    EXPECT_EQ(last[0].psn(), first + 2);
}

// C9-105 …: a duplicate is acknowledged again and not executed again; ACKs never go back.
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

// ---- opcode succession (IBA 9.7.4.1.3) and lengths (9.7.4.1.6): NAK invalid request, QP in error, receive completed in error
// -------

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

// IBA 9.7.5.2.8: without a receive WQE the answer is an RNR NAK with our timer; the same PSN then works.
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

// ---- remote access --------------------------------------------------------------------------------------------------

TEST_F(Responder, RkeyViolationHurtsOneQpOnly) {
    const uint32_t other_pd = a.client.alloc_pd();
    Mr& foreign = a.client.reg_mr(other_pd, 4096);
    Mr& read_only = a.client.reg_mr(a.pd, 4096, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
    struct Case {
        const char* what;
        uint64_t va;
        uint32_t rkey, length;
    };
    const Case cases[] = {{"unknown key", a.mr.address(), 0xdeadbeef, 10},
                          {"key 0", a.mr.address(), 0, 10},
                          {"stale variant", a.mr.address(), a.mr.rkey ^ 1, 10},
                          {"beyond the end", a.mr.address() + a.mr.length - 5, a.mr.rkey, 10},
                          {"before the start", a.mr.address() - 1, a.mr.rkey, 10},
                          {"address wraps", ~uint64_t{0} - 4, a.mr.rkey, 10},
                          {"another PD's", foreign.address(), foreign.rkey, 10},
                          {"no right to write", read_only.address(), read_only.rkey, 10}};
    Qp& bystander = a.qp();
    connect(a.client, bystander, puppet, path);
    uint32_t bystander_psn = first;
    for (const Case& c : cases) {
        SCOPED_TRACE(c.what);
        Qp& q = a.qp();
        connect(a.client, q, puppet, path);
        puppet.send(Operation::write_only, write_at(first, c.va, c.rkey, c.length), bytes_of(c.length, 1));
        EXPECT_EQ(answer(), kNakAccess);
        EXPECT_EQ(a.client.query(q).attr.qp_state, uint32_t(IBV_QPS_ERR));
        puppet.talk_to(a.client.self(bystander));
        puppet.send(Operation::write_only, write_at(bystander_psn++, a.mr.address(), a.mr.rkey, 10), bytes_of(10, 1));
        EXPECT_TRUE(is_ack(answer()));
    }
    for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(foreign.data()[i], 0);
    for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(read_only.data()[i], 0);
}

TEST_F(Responder, RightsOfTheQpCount) {
    path.access = IBV_ACCESS_LOCAL_WRITE;
    for (Operation op : {Operation::write_only, Operation::read_request, Operation::fetch_add}) {
        Qp& q = a.qp();
        connect(a.client, q, puppet, path);
        auto h = write_at(first, a.mr.address(), a.mr.rkey, 8);
        puppet.send(op, h, op == Operation::write_only ? bytes_of(8, 1) : std::vector<uint8_t>{});
        EXPECT_EQ(answer(), kNakInvalid) << "not enabled for this QP (IBA 9.7.4.1.5)";
    }
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(a.mr.data()[i], 0);
}

TEST_F(Responder, ZeroLengthNeedsNoKey) {
    join();
    puppet.send(Operation::write_only, write_at(first, 0xdead, 0xbeef, 0));
    EXPECT_TRUE(is_ack(answer())) << "C9-88";
    puppet.send(Operation::read_request, write_at(first + 1, 0xdead, 0xbeef, 0));
    const auto got = puppet.listen(50'000);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].op(), Operation::read_response_only);
    EXPECT_EQ(got[0].packet.payload_length, 0u);
}

// ---- READ and atomics -----------------------------------------------------------------------------------------------

TEST_F(Responder, ReadIsAnsweredAndAnsweredAgain) {
    join();
    fill(a.mr.data(), 3000, 6);
    for (int again = 0; again < 2; ++again) {
        puppet.send(Operation::read_request, write_at(first, a.mr.address(), a.mr.rkey, 3000));
        const auto got = puppet.listen(50'000);
        ASSERT_EQ(psns(got), range(first, 3)) << again;
        EXPECT_EQ(got[0].op(), Operation::read_response_first);
        EXPECT_EQ(got[1].op(), Operation::read_response_middle);
        EXPECT_EQ(got[2].op(), Operation::read_response_last);
        EXPECT_EQ(got[2].packet.msn.value, 1u) << "executed once as a message";
        std::vector<uint8_t> all;
        for (const auto& g : got) {
            const auto p = g.payload();
            all.insert(all.end(), p.begin(), p.end());
        }
        EXPECT_EQ(all, bytes_of(3000, 6));
    }
    // only the end of it again, as a requester does that lost the tail
    puppet.send(Operation::read_request, write_at(first + 2, a.mr.address() + 2048, a.mr.rkey, 952));
    const auto tail = puppet.listen(50'000);
    ASSERT_EQ(psns(tail), range(first + 2, 1));
    EXPECT_EQ(tail[0].op(), Operation::read_response_only);
    const auto bytes = bytes_of(3000, 6);
    EXPECT_EQ(tail[0].payload(), std::vector<uint8_t>(bytes.begin() + 2048, bytes.end()));
    // and a new request goes on after the response's PSNs
    recv(1, 8192, 10);
    send_only(first + 3, 10, 1);
    EXPECT_TRUE(is_ack(answer()));
}

TEST_F(Responder, AtomicsExecuteOnceAndReplayTheirAnswer) {
    join();
    uint64_t word = 40;
    std::memcpy(a.mr.data(), &word, 8);
    auto h = write_at(first, a.mr.address(), a.mr.rkey, 0);
    h.swap_add = 2;
    for (int again = 0; again < 3; ++again) {
        puppet.send(Operation::fetch_add, h);
        const auto got = puppet.listen(50'000);
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].op(), Operation::atomic_ack);
        EXPECT_EQ(got[0].packet.atomic_original, 40u);
        std::memcpy(&word, a.mr.data(), 8);
        EXPECT_EQ(word, 42u) << "IBA 9.4.5: executed once";
    }
    h.psn = Psn(first + 1);
    h.compare = 42;
    h.swap_add = 7;
    puppet.send(Operation::cmp_swap, h);
    auto got = puppet.listen(50'000);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].packet.atomic_original, 42u);
    h.psn = Psn(first + 2);
    puppet.send(Operation::cmp_swap, h);
    got = puppet.listen(50'000);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].packet.atomic_original, 7u);
    std::memcpy(&word, a.mr.data(), 8);
    EXPECT_EQ(word, 7u) << "the second compare failed";
}

TEST_F(Responder, MisalignedAtomicIsNaked) {
    join();
    auto h = write_at(first, a.mr.address() + 4, a.mr.rkey, 0);
    puppet.send(Operation::fetch_add, h);
    EXPECT_EQ(answer(), kNakInvalid);
}

TEST_F(Responder, AFlushIsAnOperationThatWeDoNotServe) {
    join();
    puppet.send(Operation::flush, write_at(first, a.mr.address(), a.mr.rkey, 64));
    EXPECT_EQ(answer(), kNakInvalid);
}

TEST_F(Responder, MoreReadsThanAgreedAreNaked) {
    path.max_dest_rd_atomic = 2;
    join();
    world.net().link(world.host(0).endpoint(0)).bits_per_second = 1'000'000;  // answers take long
    for (uint32_t i = 0; i < 8; ++i) {
        // each of 100 packets, all at once
        puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::rc, Operation::read_request),
                                     write_at(first + i * 100, a.mr.address(), a.mr.rkey, 100 * kMtu)));
    }
    world.run_for(10'000'000);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR)) << "IBA 9.7.4.1.5: invalid request";
}

// Requests that come again, late or in part, are answered in their place; they never count as READs beyond the agreed number.
TEST_F(Responder, DuplicateReadsDoNotUseUpTheAgreedNumber) {
    path.max_dest_rd_atomic = 2;
    join();
    fill(a.mr.data(), 64 * kMtu, 1);
    auto request = [&](uint32_t offset, uint32_t packets) {  // PSN and address move together
        puppet.send(Operation::read_request, write_at(first + offset, a.mr.address() + offset * kMtu, a.mr.rkey, packets * kMtu));
    };
    request(0, 10);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(first, 10));
    request(10, 10);
    request(0, 10);  // an old one that was long under way
    request(13, 7);  // the end of the second once more
    request(13, 7);
    request(2, 3);
    request(20, 5);  // and a new one, the second that is outstanding
    std::map<uint32_t, std::vector<uint8_t>> answers;
    for (const auto& g : puppet.listen(200'000)) {
        EXPECT_TRUE(g.packet.info->has(wire::kRead)) << "no NAK";
        answers[g.psn() - first] = g.payload();
    }
    for (uint32_t i = 10; i < 25; ++i) {
        ASSERT_EQ(answers[i].size(), kMtu) << i;
        EXPECT_EQ(std::memcmp(answers[i].data(), a.mr.data() + i * kMtu, kMtu), 0) << i;
    }
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
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
    broken.back() ^= 1;  // ICRC
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
    Puppet stranger(world);  // same QPN, another MAC … and here another IP
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
