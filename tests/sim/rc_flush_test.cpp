// Tests of FLUSH (IBA 1.6, annex A19): the header of a request, its response, its repetition, and work requests that are
// refused. responder_faults_test.cpp has the faults of the peer.
#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

constexpr uint32_t kGlobal = abi::kFlushGlobal, kWhole = abi::kFlushGlobal | abi::kFlushRegion;

struct Flush : Responder {
    wire::TransportHeaders flush_at(uint32_t psn, uint64_t va, uint32_t length, uint32_t fields) {
        wire::TransportHeaders h = write_at(psn, va, a.mr.rkey, length);
        h.flush = fields;
        return h;
    }
    /// Sends a FLUSH. Expects an empty READ response with the PSN of the FLUSH, and returns the MSN of the response.
    uint32_t answered(const wire::TransportHeaders& h) {
        puppet.send(Operation::flush, h);
        const auto got = puppet.listen();
        EXPECT_EQ(got.size(), 1u);
        if (got.empty()) return 0;
        EXPECT_EQ(got[0].op(), Operation::read_response_only);
        EXPECT_EQ(got[0].psn(), h.psn.value());
        EXPECT_EQ(got[0].packet.payload_length, 0u);
        EXPECT_TRUE(is_ack(got[0].packet.syndrome));
        return got[0].packet.msn.value;
    }
    SendWr request(uint64_t id, uint32_t fields, uint64_t length) {
        return {
            .id = id, .opcode = WrOpcode::flush, .remote_addr = 0x7000, .rkey = 0x1234, .flush = fields, .flush_length = length};
    }
    WcStatus status_of(const SendWr& wr) {
        a.client.post_send(qp, wr);
        return a.wait_status();
    }
};

TEST_F(Flush, IsAnsweredByAnEmptyReadResponse) {
    join();
    puppet.send(Operation::write_only, write_at(first, a.mr.address(), a.mr.rkey, 100, false), bytes_of(100, 1));
    EXPECT_EQ(answered(flush_at(first + 1, a.mr.address(), 100, kGlobal)), 2u) << "the WRITE and the FLUSH are two messages";
    EXPECT_EQ(first_wrong(a.mr.data(), 100, 1), -1);
    EXPECT_EQ(answered(flush_at(first + 2, a.mr.address() + a.mr.length, 0, kGlobal)), 3u) << "length 0 at the end of the region";
    constexpr uint32_t kReserved = ~uint32_t{abi::kFlushFields};
    EXPECT_EQ(answered(flush_at(first + 3, a.mr.address(), 8, kGlobal | kReserved)), 4u) << "reserved bits have no meaning";
}

TEST_F(Flush, OfAWholeRegionIgnoresAddressAndLength) {
    join();
    EXPECT_EQ(answered(flush_at(first, 0, 0, kWhole)), 1u);
    EXPECT_EQ(answered(flush_at(first + 1, ~uint64_t{0}, 12345678, kWhole)), 2u);
}

TEST_F(Flush, ThatIsRepeatedIsAnsweredAgain) {
    join();
    const auto h = flush_at(first, a.mr.address(), 100, kGlobal);
    EXPECT_EQ(answered(h), 1u);
    EXPECT_EQ(answered(h), 1u);
    EXPECT_EQ(answered(flush_at(first + 1, a.mr.address(), 100, kGlobal)), 2u);
}

TEST_F(Flush, HasTheFieldsOfTheWorkRequest) {
    join();
    a.client.post_send(qp, request(1, kWhole, 5000));
    const auto got = puppet.listen();
    ASSERT_EQ(got.size(), 1u) << "one packet, whatever the length of the range";
    EXPECT_EQ(got[0].op(), Operation::flush);
    EXPECT_EQ(got[0].packet.flush, kWhole);
    EXPECT_EQ(got[0].packet.va, 0x7000u);
    EXPECT_EQ(got[0].packet.rkey.value, 0x1234u);
    EXPECT_EQ(got[0].packet.dma_length, 5000u);
    EXPECT_TRUE(got[0].packet.ack_request);
    a.client.post_send(qp, request(2, kGlobal, 1));
    const auto next = puppet.listen();
    ASSERT_FALSE(next.empty());
    EXPECT_EQ(next[0].psn(), 0x101u);
    // An ACK of the second FLUSH is an implied NAK of the first response.
    puppet.send_ack(0x101, 2);
    const auto again = puppet.listen();
    ASSERT_FALSE(again.empty());
    EXPECT_EQ(again[0].op(), Operation::flush);
    EXPECT_EQ(again[0].psn(), 0x100u);
    EXPECT_TRUE(a.poll_all().empty());
    for (const uint32_t psn : {0x100u, 0x101u}) {
        wire::TransportHeaders h = at(psn);
        h.syndrome = 31;
        h.msn = Msn{psn - 0xff};
        puppet.send(Operation::read_response_only, h);
    }
    const auto done = a.wait(2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].status, WcStatus::success);
    EXPECT_EQ(done[0].opcode, abi::WcOpcode::flush);
    EXPECT_EQ(done[1].wr_id, 2u);
}

TEST_F(Flush, WithAPayloadInItsResponseFails) {
    join();
    a.client.post_send(qp, request(1, kGlobal, 100));
    ASSERT_EQ(puppet.listen().size(), 1u);
    wire::TransportHeaders h = at(0x100);
    h.syndrome = 31;
    puppet.send(Operation::read_response_only, h, bytes_of(100, 1));
    EXPECT_EQ(a.wait_status(), WcStatus::loc_len_err);
}

struct Malformed {
    const char* name;
    uint32_t fields;
    uint64_t length;
    WcStatus status;
    uint8_t flags = 0;
    bool sge = false;
};
constexpr Malformed kMalformed[] = {
    {"NoPlacement", 0, 10, WcStatus::loc_qp_op_err},
    {"ReservedPlacement", kGlobal | 1 << 2, 10, WcStatus::loc_qp_op_err},
    {"ReservedLevel", kGlobal | 2 << 4, 10, WcStatus::loc_qp_op_err},
    {"ReservedBits", kGlobal | 1 << 6, 10, WcStatus::loc_qp_op_err},
    {"TooLong", kGlobal, (uint64_t{1} << 31) + 1, WcStatus::loc_len_err},
    {"Endless", kGlobal, ~uint64_t{0}, WcStatus::loc_len_err},
    {"Inline", kGlobal, 10, WcStatus::loc_qp_op_err, abi::kSendInline},
    {"WithMemory", kGlobal, 10, WcStatus::loc_qp_op_err, 0, true},
};
struct MalformedFlush : Flush, ::testing::WithParamInterface<Malformed> {};

TEST_P(MalformedFlush, IsRefusedByTheRequester) {
    const Malformed& m = GetParam();
    join();
    SendWr wr = request(1, m.fields, m.length);
    wr.flags = uint8_t(wr.flags | m.flags);
    if (m.sge) wr.sges = {a.sge(0, 8)};
    EXPECT_EQ(status_of(wr), m.status);
    EXPECT_TRUE(puppet.listen().empty());
}
INSTANTIATE_TEST_SUITE_P(, MalformedFlush, ::testing::ValuesIn(kMalformed),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace roci::sim
