// Tests of remote access by WRITE, READ and atomics: keys, rights, limits and repeated requests. The requester is a puppet, whose
// packets the test writes.
#include "qp/roles.hpp"
#include "qp/shared.hpp"
#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

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
    // If a requester has lost the last response, it repeats only the last part of the READ.
    puppet.send(Operation::read_request, write_at(first + 2, a.mr.address() + 2048, a.mr.rkey, 952));
    const auto tail = puppet.listen(50'000);
    ASSERT_EQ(psns(tail), range(first + 2, 1));
    EXPECT_EQ(tail[0].op(), Operation::read_response_only);
    const auto bytes = bytes_of(3000, 6);
    EXPECT_EQ(tail[0].payload(), std::vector<uint8_t>(bytes.begin() + 2048, bytes.end()));
    // The PSN of a new request is the PSN after the last PSN of the response.
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

// The responder may still keep the result of an old atomic when, 2^24 PSNs later, a new atomic has the same PSN. The
// test sets the PSN back, because 2^24 packets would take too long.
TEST_F(Responder, ARepeatedAtomicGetsItsOwnResultAfterThePsnsHaveWrappedAround) {
    join();
    uint64_t word = 40;
    std::memcpy(a.mr.data(), &word, 8);
    auto h = write_at(first, a.mr.address(), a.mr.rkey, 0);
    h.swap_add = 2;
    const auto original = [&] {
        puppet.send(Operation::fetch_add, h);
        const auto got = puppet.listen(50'000);
        return got.size() == 1 ? got[0].packet.atomic_original : ~uint64_t{0};
    };
    EXPECT_EQ(original(), 40u);
    world.host(0).shared().qps.find(qp.qpn)->responder.sequence.start(Psn(first));
    EXPECT_EQ(original(), 42u) << "a new atomic";
    EXPECT_EQ(original(), 42u) << "a repeated one";
    std::memcpy(&word, a.mr.data(), 8);
    EXPECT_EQ(word, 44u);
}

TEST_F(Responder, MisalignedAtomicIsNaked) {
    join();
    auto h = write_at(first, a.mr.address() + 4, a.mr.rkey, 0);
    puppet.send(Operation::fetch_add, h);
    EXPECT_EQ(answer(), kNakInvalid);
}

TEST_F(Responder, MoreReadsThanAgreedAreNaked) {
    path.max_dest_rd_atomic = 2;
    join();
    world.net().link(world.host(0).endpoint(0)).bits_per_second = 1'000'000;  // a slow link, so that the responses take long
    for (uint32_t i = 0; i < 8; ++i) {
        // Each READ has a response of 100 packets, and all READs arrive at once.
        puppet.send_raw(puppet.build(wire::make_opcode(wire::Service::rc, Operation::read_request),
                                     write_at(first + i * 100, a.mr.address(), a.mr.rkey, 100 * kMtu)));
    }
    const auto got = puppet.listen(10'000'000'000);
    ASSERT_EQ(psns(got), range(first, 201)) << "the responses of two READs, then the NAK of the third";
    for (size_t i = 0; i < 200; ++i) EXPECT_TRUE(got[i].packet.info->has(wire::kRead));
    EXPECT_EQ(got[200].op(), Operation::ack);
    EXPECT_EQ(got[200].packet.syndrome, kNakInvalid);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR)) << "IBA 9.7.4.1.5: invalid request";
}

// Repeated READs must not count as outstanding READs (max_dest_rd_atomic), even if they are late or partial.
TEST_F(Responder, DuplicateReadsDoNotUseUpTheAgreedNumber) {
    path.max_dest_rd_atomic = 2;
    join();
    fill(a.mr.data(), 64 * kMtu, 1);
    auto request = [&](uint32_t offset, uint32_t packets) {  // the PSN and the address increase together
        puppet.send(Operation::read_request, write_at(first + offset, a.mr.address() + offset * kMtu, a.mr.rkey, packets * kMtu));
    };
    request(0, 10);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(first, 10));
    request(10, 10);
    request(0, 10);  // an old duplicate that was in the network for a long time
    request(13, 7);  // repeats the end of the second READ
    request(13, 7);
    request(2, 3);
    request(20, 5);  // a new READ
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

/// The program modifies the QP before the engine has sent a fatal NAK. The change must be refused, and the QP must
/// stay in ERR.
TEST_F(Responder, AStepBehindAFatalNakIsRefused) {
    join();
    const qp::Qp& inside = *world.host(0).shared().qps.find(qp.qpn);
    puppet.send(Operation::write_only, write_at(first, a.mr.address(), a.mr.rkey ^ 0xff00, 8), bytes_of(8, 1));
    ASSERT_TRUE(world.run_until([&] { return qp::has_responses(inside); }));
    abi::QpAttr attr{};
    attr.qp_state = IBV_QPS_SQD;
    EXPECT_EQ(a.client.try_modify(qp, IBV_QP_STATE, attr), EINVAL);
    EXPECT_EQ(a.client.query(qp).attr.qp_state, uint32_t(IBV_QPS_ERR));
}

}  // namespace
}  // namespace roci::sim
