// Tests of loss reports: the packets that a requester repeats after a report, the missing packets that a responder
// reports, and the effect of wrong reports.
#include "qp/reorder_pool.hpp"
#include "qp/shared.hpp"
#include "qp/state.hpp"
#include "responder_fixture.hpp"
#include "wire/loss_report.hpp"

namespace roci::sim {
namespace {

using engine::Counter;
using wire::LossReport;
using wire::ReportKind;

struct Reports : Responder {
    explicit Reports(const WorldOptions& o = {.hosts = 1, .engine = {.loss_reports = true}}) : Responder(o) {}
    uint16_t serial = 0;
    void SetUp() override { puppet.knows_reports = true; }
    uint64_t count(Counter c) { return world.host(0).counter(c); }
    qp::Qp& state_of() { return *world.host(0).shared().qps.find(qp.qpn); }
    /// Returns a report that begins at `base`. It states that the packets in `holes` are missing, and that the other
    /// packets up to the last of `holes` have arrived.
    LossReport report(uint32_t base, uint32_t newest, std::initializer_list<uint32_t> holes) {
        LossReport r;
        r.kind = ReportKind::report;
        r.serial = ++serial;
        r.base = Psn(base);
        r.newest = Psn(newest);
        r.places = 3;
        for (const uint32_t h : holes) r.length = uint16_t(h - base + 1);
        for (uint32_t i = 0; i < r.length; ++i)
            if (std::find(holes.begin(), holes.end(), base + i) == holes.end()) r.set(i);
        return r;
    }
    void send(const LossReport& r) {
        std::vector<uint8_t> bytes(LossReport::kBytes);
        wire::write_loss_report(bytes.data(), r);
        send_bytes(bytes);
    }
    void send_bytes(const std::vector<uint8_t>& bytes) { puppet.send_raw(puppet.build(wire::kLossReportOpcode, {}, bytes)); }
    void write(uint32_t packets) {
        a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 1, 0, packets * kMtu, 0x1000, 7));
        ASSERT_EQ(puppet.listen(20'000).size(), packets);
    }
    static bool is_report(const Puppet::Got& g) { return g.packet.opcode == wire::kLossReportOpcode; }
    static LossReport read(const Puppet::Got& g) {
        LossReport r;
        EXPECT_TRUE(wire::read_loss_report(g.packet.payload, g.packet.payload_length, r));
        return r;
    }
    /// Returns the PSNs of the requests in `got`, without loss reports.
    static std::vector<uint32_t> requests(const std::vector<Puppet::Got>& got) {
        std::vector<uint32_t> v;
        for (const auto& g : got)
            if (!is_report(g)) v.push_back(g.psn());
        return v;
    }
    /// Resets the QP and connects it again. Then loses a packet as lose_one() does.
    void lose_one_of_a_new_qp() {
        a.client.to_state(qp, IBV_QPS_RESET);
        join();
        serial = 0;
        lose_one(40);
    }
    /// Writes `packets` packets and sends a NAK for PSN 0x103. The requester must send an inquiry and repeat 0x103.
    void lose_one(uint32_t packets) {
        write(packets);
        puppet.send_ack(0x103, 0, kNakSequence);
        const auto got = puppet.listen(10'000);
        ASSERT_EQ(got.size(), 2u);
        ASSERT_TRUE(is_report(got[0]));
        EXPECT_EQ(read(got[0]).kind, ReportKind::inquiry);
        ASSERT_EQ(requests(got), range(0x103, 1));
    }
};

// ---- requester

/// The cumulative ACK comes only after the repair. Without the sample of the report, the QP would take the time of the repair for
/// a time in queues.
TEST_F(Reports, AReportMeasuresTheRoundTripOfAPacketBehindAHole) {
    join();
    lose_one(40);
    const auto samples = [&] { return state_of().adaptation.samples; };
    send(report(0x103, 0x110, {0x103}));  // the first report answers the inquiry
    puppet.listen(10'000);
    cc::start(state_of().requester.congestion, state_of().adaptation, {}, cc::Policy::delay, kMtu);
    state_of().requester.congestion.window = cc::kFullWindow;
    write(16);  // 0x128 … 0x137
    const uint32_t before = samples();
    send(report(0x103, 0x137, {0x103}));
    puppet.listen(10'000);
    EXPECT_EQ(samples(), before + 1);
    send(report(0x103, 0x137, {0x103}));
    puppet.listen(10'000);
    EXPECT_EQ(samples(), before + 1) << "nothing newer has arrived";
}

TEST_F(Reports, AllHolesAreRepairedInOneRoundTrip) {
    join();
    lose_one(40);
    send(report(0x103, 0x127, {0x103, 0x107, 0x108, 0x120}));
    EXPECT_EQ(requests(puppet.listen(10'000)), (std::vector<uint32_t>{0x107, 0x108, 0x120})) << "0x103 is under way";
    EXPECT_EQ(state_of().requester.window.acked(), Psn(0x103)) << "a report acknowledges nothing";
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_TRUE(a.client.query(qp).attr.qp_state == IBV_QPS_RTS);
    puppet.send_ack(0x127, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(count(Counter::loss_reports_used), 1u);
    EXPECT_EQ(count(Counter::loss_reports_refused), 0u);
}

TEST_F(Reports, ARepeatedPacketIsLostAgainIfMoreThanAFewLaterOnesHaveArrived) {
    join();
    lose_one(40);
    send(report(0x103, 0x127, {0x103, 0x107}));
    ASSERT_EQ(requests(puppet.listen(10'000)), range(0x107, 1));
    write(8);  // 0x128 … 0x12f
    send(report(0x103, 0x12a, {0x103, 0x107}));
    EXPECT_TRUE(requests(puppet.listen(10'000)).empty()) << "overtaken by three";
    send(report(0x103, 0x12b, {0x103}));
    EXPECT_EQ(requests(puppet.listen(10'000)), range(0x103, 1)) << "0x107 has arrived";
    send(report(0x103, 0x12b, {0x103}));
    EXPECT_TRUE(requests(puppet.listen(10'000)).empty()) << "it is under way again";
}

// All packets of a burst are lost, so a report contains none of them. The number of packets that the requester repeats
// per round must grow as it does without reports.
TEST_F(Reports, ManyPacketsLostAtTheEndOfABurstAreRepairedInFewRounds) {
    join();
    lose_one(40);
    send(report(0x103, 0x127, {0x103}));
    puppet.send_ack(0x127, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    write(64);  // 0x128 … 0x167; all of these packets are lost
    uint32_t acked = 0x128;
    size_t largest = 0;
    for (int round = 0; round < 8 && largest < 16; ++round) {
        const auto again = requests(puppet.listen(100'000));
        ASSERT_FALSE(again.empty());
        ASSERT_EQ(again.front(), acked);
        largest = std::max(largest, again.size());
        acked = again.back() + 1;
        puppet.send_ack(acked - 1, 1);
    }
    EXPECT_GE(largest, 16u);
}

// A hostile peer sends reports that contradict each other. The requester must repeat a packet at most once per round trip.
TEST_F(Reports, ContradictingReportsRepeatAPacketOncePerRoundTrip) {
    join();
    lose_one(40);
    for (int i = 0; i < 50; ++i) {
        send(report(0x103, 0x127, {0x103, 0x107, 0x110}));
        LossReport all = report(0x103, 0x127, {0x120});
        for (uint32_t k = 0; k < all.length; ++k) all.set(k);
        send(all);
    }
    EXPECT_LE(requests(puppet.listen(1'000)).size(), 6u);
}

TEST_F(Reports, AnOlderReportHasNoEffect) {
    join();
    lose_one(40);
    LossReport old = report(0x103, 0x127, {0x103, 0x107});
    send(report(0x103, 0x127, {0x103}));
    send(old);
    EXPECT_TRUE(requests(puppet.listen(10'000)).empty());
    puppet.send_ack(0x10f, 0);
    send(report(0x103, 0x127, {0x103, 0x107}));
    EXPECT_TRUE(requests(puppet.listen(10'000)).empty()) << "an ACK has overtaken it";
    EXPECT_EQ(count(Counter::loss_reports_refused), 0u);
}

TEST_F(Reports, AReadRequestIsRepeatedWhole) {
    join();
    write(5);
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, 2, 0, 4 * kMtu, 0x1000, 7));
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 3, 0, 8 * kMtu, 0x1000, 7));
    ASSERT_EQ(puppet.listen(20'000).size(), 9u);
    puppet.send_ack(0x103, 0, kNakSequence);
    ASSERT_EQ(puppet.listen(10'000).size(), 2u);
    send(report(0x103, 0x110, {0x103, 0x105, 0x106, 0x107, 0x108, 0x10b}));
    const auto again = puppet.listen(10'000);
    ASSERT_EQ(psns(again), (std::vector<uint32_t>{0x105, 0x10b}));
    EXPECT_EQ(again[0].packet.dma_length, 4 * kMtu);
}

TEST_F(Reports, APeerThatDoesNotAnswerGetsThreeInquiries) {
    path.timeout = 0;
    join();
    uint32_t inquiries = 0;
    write(20);
    for (uint32_t psn = 0x100; psn < 0x110; ++psn) {
        puppet.send_ack(psn, 0, kNakSequence);
        for (const auto& g : puppet.listen(2'000'000)) inquiries += is_report(g);
    }
    EXPECT_EQ(inquiries, 3u);
    EXPECT_EQ(count(Counter::loss_inquiries), 3u);
}

TEST_F(Reports, WithoutLossThereIsNoInquiry) {
    join();
    write(20);
    puppet.send_ack(0x113, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_TRUE(puppet.listen(1'000'000).empty());
}

// A peer sends reports, but no ACK. The QP must fail after the ACK timeout and the number of retries that the program
// has set.
TEST_F(Reports, AReportDoesNotRestartTheAckTimeout) {
    path.timeout = 10;
    path.retry_cnt = 1;
    join();
    lose_one(40);
    const Nanos start = world.now();
    bool failed = false;
    for (int i = 0; i < 1000 && !failed; ++i) {
        send(report(0x103, 0x127, {0x103, 0x107u + uint32_t(i) % 2}));
        world.run_for(100'000);
        failed = !a.poll_all().empty();
    }
    EXPECT_TRUE(failed);
    EXPECT_LE(world.now() - start, 8 * (Nanos{4096} << 10)) << "C9-139: at most four times each";
}

TEST_F(Reports, AReportTakesNoRetry) {
    path.retry_cnt = 1;
    path.timeout = 0;
    join();
    lose_one(40);
    const uint8_t left = state_of().requester.retries_left;
    for (uint32_t i = 0; i < 30; ++i) {
        send(report(0x103, 0x127, {0x103, 0x104 + i}));
        world.run_for(10'000);
    }
    EXPECT_EQ(state_of().requester.retries_left, left);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
}

TEST_F(Reports, AReportThatContradictsWhatWasSentEndsTheirUse) {
    struct Case {
        const char* what;
        uint32_t base, newest;
    };
    for (const Case& c : {Case{"never sent", 0x103, 0x128}, Case{"far ahead", 0x200, 0x210}, Case{"everything", 0x129, 0x128}}) {
        SCOPED_TRACE(c.what);
        constexpr uint32_t kMost = qp::LossReports::kMostWrong;
        const uint64_t refused = count(Counter::loss_reports_refused);
        lose_one_of_a_new_qp();
        for (uint32_t i = 1; i < kMost; ++i) send(report(c.base, c.newest, {}));
        world.run_for(10'000);
        EXPECT_EQ(count(Counter::loss_reports_refused), refused + kMost - 1);
        send(report(0x103, 0x127, {0x103, 0x107}));
        EXPECT_EQ(requests(puppet.listen(10'000)), range(0x107, 1)) << "one of them may be forged";
        send(report(c.base, c.newest, {}));
        world.run_for(10'000);
        send(report(0x103, 0x127, {0x103, 0x107, 0x109}));
        EXPECT_TRUE(puppet.listen(10'000).empty()) << "ignored from now on";
        EXPECT_EQ(count(Counter::loss_reports_refused), refused + kMost + 1);
        puppet.send_ack(0x127, 1);
        EXPECT_EQ(a.wait_status(), WcStatus::success);
    }
}

// Any host that knows the addresses may send malformed reports.
TEST_F(Reports, AMalformedReportIsCountedAndChangesNothing) {
    join();
    lose_one(40);
    std::vector<uint8_t> bytes(LossReport::kBytes);
    wire::write_loss_report(bytes.data(), report(0x103, 0x127, {0x103, 0x107}));
    bytes.pop_back();
    for (uint32_t i = 0; i < 100; ++i) send_bytes(bytes);
    EXPECT_TRUE(requests(puppet.listen(10'000)).empty());
    EXPECT_EQ(count(Counter::loss_reports_refused), 100u);
    send(report(0x103, 0x127, {0x103, 0x107}));
    EXPECT_EQ(requests(puppet.listen(10'000)), range(0x107, 1));
    EXPECT_EQ(count(Counter::loss_reports_used), 1u);
}

TEST_F(Reports, NobodyAskedForThisReport) {
    join();
    write(20);
    send(report(0x103, 0x113, {0x103, 0x107}));
    EXPECT_TRUE(puppet.listen(10'000).empty());
    EXPECT_EQ(count(Counter::loss_reports_refused), 1u);
    puppet.send_ack(0x113, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// Random reports must cause only repetitions of packets that the QP has sent before, and no completion. After these reports, the
// QP must work.
TEST_F(Reports, RandomReportsDoNoHarm) {
    path.timeout = 0;
    join();
    lose_one(40);
    Rng rng(7);
    for (int i = 0; i < 3000; ++i) {
        LossReport r = report(0x100 + uint32_t(rng.below(50)), 0x100 + uint32_t(rng.below(0x28)), {});
        r.length = uint16_t(rng.below(LossReport::kMost + 40));
        r.places = uint16_t(rng.below(0x10000));
        r.serial = uint16_t(rng.below(0x10000));
        for (auto& byte : r.arrived) byte = uint8_t(rng.below(3) == 0 ? rng.below(256) : 0);
        if (r.length <= LossReport::kMost && rng.chance(0.7)) {  // makes the report consistent in itself
            for (uint32_t k = r.length; k < LossReport::kMost; ++k) r.arrived[k / 8] &= uint8_t(~(1u << k % 8));
            r.arrived[0] &= 0xfe;
        }
        std::vector<uint8_t> bytes(LossReport::kBytes);
        wire::write_loss_report(bytes.data(), r);
        if (rng.chance(0.1)) bytes[rng.below(bytes.size())] ^= uint8_t(1u << rng.below(8));
        if (rng.chance(0.05)) bytes.resize(rng.below(bytes.size()));
        send_bytes(bytes);
        if (i % 8 == 0) world.run_for(5'000);
        if (i % 100 == 0)
            state_of().reorder->reports.peer = roci::qp::LossReports::Peer::unknown;  // the QP then evaluates reports again
        for (const uint32_t psn : requests(puppet.listen(1'000))) EXPECT_LT(psn - 0x100, 40u);
    }
    EXPECT_TRUE(a.poll_all().empty());
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS));
    puppet.send_ack(0x127, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ---- responder

TEST_F(Reports, AResponderThatWasAskedReportsItsHoles) {
    join();
    for (uint32_t i = 0; i < 30; ++i) recv(i, i * 100, 100);
    send(LossReport{});  // an inquiry
    auto got = puppet.listen(10'000);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(read(got[0]).kind, ReportKind::report);
    EXPECT_EQ(read(got[0]).base, Psn(first));
    EXPECT_EQ(read(got[0]).length, 0u);
    for (const uint32_t i : {0, 2, 3, 5, 6, 7, 8, 9, 10}) send_only(first + i, 10, i);
    got = puppet.listen(20'000);
    std::erase_if(got, [](const auto& g) { return !is_report(g); });
    ASSERT_FALSE(got.empty());
    const LossReport last_one = read(got.back());
    EXPECT_EQ(last_one.base, Psn(first + 1));
    EXPECT_GE(last_one.newest.distance_from(Psn(first)), 8) << "four places behind the second hole";
    ASSERT_EQ(last_one.length, 4u);
    EXPECT_TRUE(!last_one.has(0) && last_one.has(1) && last_one.has(2) && !last_one.has(3));
    send_only(first + 4, 10, 4);
    got = puppet.listen(20'000);
    ASSERT_EQ(got.size(), 1u) << "a hole is filled, but not the first one";
    EXPECT_TRUE(is_report(got[0]));
    EXPECT_TRUE(read(got[0]).has(3));
    send_only(first + 1, 10, 1);
    got = puppet.listen(100'000);
    ASSERT_EQ(got.size(), 1u) << "nothing is missing any more";
    EXPECT_TRUE(is_ack(got[0].packet.syndrome));
    EXPECT_EQ(got[0].psn(), first + 10);
    EXPECT_EQ(a.poll_all().size(), 11u);
}

// The quantum of the QP is one. So the engine sends one packet of the response per round.
struct ReportsOfASlowResponder : Reports {
    ReportsOfASlowResponder() : Reports({.hosts = 1, .engine = {.qp_quantum = 1, .loss_reports = true}}) {}
};

TEST_F(ReportsOfASlowResponder, AReportDoesNotWaitForTheResponseToARead) {
    constexpr uint32_t kPackets = 500;
    join();
    for (uint32_t i = 0; i < 30; ++i) recv(i, i * 100, 100);
    send(LossReport{});
    ASSERT_EQ(puppet.listen(10'000).size(), 1u);
    Mr& target = a.client.reg_mr(a.pd, kPackets * kMtu);
    puppet.send(Operation::read_request, write_at(first, target.address(), target.rkey, kPackets * kMtu));
    for (const uint32_t i : {1, 2, 3, 4, 5, 6}) send_only(first + kPackets + i, 10, i);
    const auto got = puppet.listen(10'000'000);
    const auto report = std::find_if(got.begin(), got.end(), is_report);
    ASSERT_NE(report, got.end());
    EXPECT_LT(report - got.begin(), kPackets / 2) << "the response has not ended";
    EXPECT_EQ(read(*report).base, Psn(first + kPackets));
}

TEST_F(Reports, AHoleThatIsLongerThanAReportIsReportedFromItsBegin) {
    join();
    send(LossReport{});
    ASSERT_EQ(puppet.listen(10'000).size(), 1u);
    for (uint32_t i = 0; i < 6; ++i) send_only(first + LossReport::kMost + 50 + i, 10, i);
    auto got = puppet.listen(20'000);
    std::erase_if(got, [](const auto& g) { return !is_report(g); });
    ASSERT_FALSE(got.empty());
    const LossReport long_hole = read(got.back());
    EXPECT_EQ(long_hole.base, Psn(first));
    EXPECT_EQ(long_hole.length, LossReport::kMost);
    for (uint32_t i = 0; i < LossReport::kMost; ++i) ASSERT_FALSE(long_hole.has(i));
}

TEST_F(Reports, AFloodOfInquiriesIsAnsweredAFewTimes) {
    join();
    for (int i = 0; i < 100; ++i) send(LossReport{});
    puppet.listen(100'000);
    EXPECT_EQ(count(Counter::loss_reports_sent), uint64_t{qp::LossReports::kMostAnswers});
}

TEST_F(Reports, AResponderThatWasNotAskedReportsNothing) {
    join();
    for (uint32_t i = 0; i < 30; ++i) recv(i, i * 100, 100);
    for (const uint32_t i : {0, 2, 3, 5, 6, 7, 8, 9, 10}) send_only(first + i, 10, i);
    for (const auto& g : puppet.listen(100'000)) EXPECT_FALSE(is_report(g));
    EXPECT_EQ(count(Counter::loss_reports_sent), 0u);
}

TEST_F(Reports, WhatIsNoInquiryIsCountedAndDropped) {
    join();
    std::vector<uint8_t> bytes(LossReport::kBytes);
    wire::write_loss_report(bytes.data(), {});
    for (size_t at = 0; at < 6; ++at) {
        auto wrong = bytes;
        wrong[at] ^= 0x40;
        send_bytes(wrong);
    }
    send_bytes({});
    bytes.push_back(0);
    send_bytes(bytes);
    EXPECT_TRUE(puppet.listen(20'000).empty());
    EXPECT_EQ(count(Counter::loss_reports_refused), 8u);
}

struct ReportsOff : Reports {
    ReportsOff() : Reports({.hosts = 1, .engine = {.loss_reports = false}}) {}
};

TEST_F(ReportsOff, NeitherAsksNorAnswers) {
    join();
    write(20);
    puppet.send_ack(0x103, 0, kNakSequence);
    EXPECT_EQ(psns(puppet.listen(10'000)), range(0x103, 1));
    send(LossReport{});
    EXPECT_TRUE(puppet.listen(10'000).empty());
    puppet.send_ack(0x113, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ---- both ends

struct ReportingPair : PairTest {
    ReportingPair() : PairTest({.engine = {.loss_reports = true}}) {}
};

TEST_F(ReportingPair, TwoRocinantesAgreeAfterTheFirstLoss) {
    join();
    world.net().set_faults({.drop = 0.05});
    fill(a.mr.data(), 400'000, 5);
    for (uint64_t i = 0; i < 20; ++i)
        a.client.post_send(qa, a.rdma(WrOpcode::rdma_write, i, 0, 400'000, b.mr.address(), b.mr.rkey));
    const auto done = a.wait(20);
    ASSERT_EQ(done.size(), 20u);
    for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::success);
    EXPECT_EQ(first_wrong(b.mr.data(), 400'000, 5), -1);
    EXPECT_GT(world.host(0).counter(Counter::loss_reports_used), 0u);
    EXPECT_EQ(world.host(0).counter(Counter::loss_reports_refused), 0u);
}

}  // namespace
}  // namespace roci::sim
