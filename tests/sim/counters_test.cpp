// Compares counters with a capture of the same run. Some counters can be computed from frames. After each event, each
// of these counters must have the value that CaptureJudge (sim/capture_judge.hpp) computes from the capture.
// kNotShown lists all other counters, each with the reason.
#include <functional>
#include <span>

#include "qp/state.hpp"
#include "responder_fixture.hpp"
#include "sim/capture_judge.hpp"

namespace roci::sim {
namespace {

struct NotShown {
    const char* counter;
    const char* reason;
};
constexpr NotShown kNotShown[] = {
    {"timeouts", "nothing is sent at that moment; OfASilentPeer compares what follows"},
    {"dropped", "what has no effect has none on the wire either"},
    {"tx_errors", "completions are between the engine and the program"},
    {"tx_flushed", "completions are between the engine and the program"},
    {"rx_errors_completed", "completions are between the engine and the program"},
    {"rx_flushed", "completions are between the engine and the program"},
    {"retry_exceeded", "nothing is sent; OfASilentPeer compares what precedes"},
    {"rnr_retry_exceeded", "nothing is sent after the last RNR NAK"},
    {"local_errors", "nothing of the request is sent"},
    // Several of the following faults have the same NAK code. The test OfAResponderThatRefuses causes the faults in
    // kRefused.
    {"request_recv_protection", "a NAK remote operational error has several reasons"},
    {"request_malformed_recv", "a NAK remote operational error has several reasons"},
    {"request_unreachable", "a NAK remote operational error has several reasons"},
    {"request_read_memory_gone", "a NAK remote access has several reasons"},
    {"request_invalid_succession", "a NAK invalid request has several reasons"},
    {"request_not_allowed", "a NAK invalid request has several reasons"},
    {"request_too_many_reads", "a NAK invalid request has several reasons"},
    {"request_bad_length", "a NAK invalid request has several reasons"},
    {"request_message_too_long", "a NAK invalid request has several reasons"},
    {"request_no_right", "a NAK invalid request has several reasons"},
    {"request_misaligned", "a NAK invalid request has several reasons"},
    {"request_bad_flush", "a NAK invalid request has several reasons"},
    {"request_access", "a NAK remote access has several reasons"},
    {"request_invalidation", "no NAK (class J)"},
    {"request_wrong_qkey", "the datagram is dropped silently"},
};

bool not_shown(const std::string& name) {
    return std::ranges::any_of(kNotShown, [&](const NotShown& n) { return name == n.counter; });
}

std::map<std::string, uint64_t> named(std::span<const roci::qp::CounterInfo> names, const uint64_t* values) {
    std::map<std::string, uint64_t> all;
    for (const roci::qp::CounterInfo& c : names) all[c.name] = *values++;
    return all;
}

/// Returns the code of the fatal NAK that the fault `counter` causes, or 0.
uint8_t nak_of(const std::string& counter) {
    using Names = std::set<std::string>;
    static const std::pair<uint8_t, Names> kCodes[] = {
        {kNakInvalid & 3,
         Names{"request_invalid_succession", "request_not_allowed", "request_too_many_reads", "request_bad_length",
               "request_message_too_long", "request_no_right", "request_misaligned", "request_bad_flush"}},
        {kNakAccess & 3, Names{"request_access", "request_read_memory_gone"}},
        {kNakOperational & 3, Names{"request_recv_protection", "request_malformed_recv", "request_unreachable"}}};
    for (const auto& [code, names] : kCodes)
        if (names.contains(counter)) return code;
    return 0;
}

struct CountersTest : Responder {
    using Responder::Responder;
    CaptureJudge judge{world.host(0).endpoint(0)};
    size_t judged = 0;

    std::map<std::string, uint64_t> of_device() {
        const auto& counters = world.host(0).engine(0).device_counters(0);
        return named(roci::qp::kDeviceCounters, reinterpret_cast<const uint64_t*>(&counters));
    }
    std::map<std::string, uint64_t> of_qp() {
        return named(roci::qp::kQpCounters, roci::qp::values(world.host(0).shared().qps.find(qp.qpn)->counters).data());
    }
    /// Runs the world for 20 µs, then compares the counters with the frames captured so far.
    void agree(const char* event) {
        SCOPED_TRACE(event);
        world.run_for(20'000);
        const auto& frames = world.net().capture();
        for (; judged < frames.size(); ++judged) judge.take(frames[judged]);
        const auto device = of_device(), own = of_qp();
        for (const auto& [name, value] : judge.of_device()) EXPECT_EQ(device.at(name), value) << name;
        for (const auto& [name, value] : judge.of_qp()) EXPECT_EQ(own.at(name), value) << name << " of the QP";
        for (const auto& [name, value] : own)  // the device has one QP
            EXPECT_EQ(device.contains(name) ? device.at(name) : value, value) << name << " of the QP";
        std::array<uint64_t, 4> naks{};
        for (const auto& [name, value] : device) naks[nak_of(name)] += nak_of(name) != 0 ? value : 0;
        for (uint8_t code = 1; code < naks.size(); ++code)
            EXPECT_EQ(naks[code], judge.naks_sent(code)) << "NAK code " << int(code);
    }
    void moved(std::initializer_list<const char*> names) {
        for (const char* name : names)
            EXPECT_GT(judge.of_device().at(name), 0u) << name << " stood still: the run shows nothing of it";
    }
};

TEST(CountersOnTheWire, EachIsComparedOrSaysWhyNot) {
    std::set<std::string> compared(std::begin(CaptureJudge::kDevice), std::end(CaptureJudge::kDevice));
    for (const roci::qp::CounterInfo& c : roci::qp::kDeviceCounters)
        EXPECT_NE(compared.contains(c.name), not_shown(c.name))
            << c.name << ": compare it with the capture, or say why it does not show";
    compared.insert(std::begin(CaptureJudge::kQp), std::end(CaptureJudge::kQp));
    for (const roci::qp::CounterInfo& c : roci::qp::kQpCounters)
        EXPECT_NE(compared.contains(c.name), not_shown(c.name)) << c.name << " of a QP";
}

TEST_F(CountersTest, OfAResponder) {
    join();
    recv(1, 0, 100);
    send_only(first, 50, 1);
    agree("a SEND");
    puppet.send(Operation::write_first, write_at(first + 1, a.mr.address(), a.mr.rkey, kMtu + 10, false), bytes_of(kMtu, 1));
    agree("half a WRITE");
    puppet.send(Operation::write_last, at(first + 2), bytes_of(10, 1));
    agree("the rest");
    puppet.send(Operation::read_request, write_at(first + 3, a.mr.address(), a.mr.rkey, 2 * kMtu + 1));
    agree("a READ of three packets");
    puppet.send(Operation::fetch_add, write_at(first + 6, a.mr.address(), a.mr.rkey, 0));
    agree("an atomic");
    puppet.send(Operation::write_last, at(first + 2), bytes_of(10, 1));
    agree("a WRITE's end again");
    puppet.send(Operation::fetch_add, write_at(first + 6, a.mr.address(), a.mr.rkey, 0));
    agree("the atomic again");
    moved({"rx_messages", "write_requests", "read_requests", "atomic_requests", "duplicates", "duplicate_requests"});
}

TEST_F(CountersTest, OfAGapAndOfNoReceive) {
    path.min_rnr_timer = 12;
    join();
    recv(1, 0, 100);
    for (uint32_t psn = first + 1; psn < first + 8; ++psn) {
        puppet.send(Operation::write_only, write_at(psn, a.mr.address(), a.mr.rkey, 10), bytes_of(10, 1));
        agree("a packet is missing");
    }
    world.run_for(1'000'000);
    agree("it was reported");
    send_only(first, 50, 1);
    agree("it is here");
    send_only(first + 8, 50, 1);
    agree("no receive");
    recv(2, 0, 100);
    send_only(first + 8, 50, 1);
    agree("the SEND again");
    moved({"out_of_order", "seq_nak_sent", "rnr_nak_sent", "rx_messages"});
}

TEST_F(CountersTest, OfARequester) {
    join();
    a.client.post_send(qp, a.send(1, 0, 2 * kMtu + 1));
    agree("a SEND of three packets");
    puppet.send_ack(0x101, 0, kNakSequence);
    agree("the second one is missing");
    puppet.send_ack(0x102, 1);
    agree("it is here");
    puppet.send_ack(0x102, 1);
    agree("the ACK again");
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 2, 0, 100, 0x10000, 0x1234));
    agree("a WRITE");
    puppet.send_ack(0x103, 1, rnr_nak(1));
    agree("the peer is not ready");
    puppet.send_ack(0x103, 2);
    agree("it is");
    EXPECT_EQ(a.wait(2).size(), 2u);
    moved({"tx_messages", "retransmits", "seq_nak_received", "rnr_nak_received", "duplicates"});
}

TEST_F(CountersTest, ArePublishedBeforeASleepAndEvery128Rounds) {
    join();
    world.run_for(20'000);
    auto& engine = world.host(0).engine(0);
    const uint64_t before = of_device().at("tx_messages"), frames = of_device().at("tx_frames");
    a.client.post_send(qp, a.send(1, 0, 100));
    engine.poll(world.now());
    engine.settle_sleepers();  // the lcore also calls this function before it sleeps
    EXPECT_EQ(of_device().at("tx_messages"), before + 1);
    EXPECT_EQ(of_device().at("tx_frames"), frames + 1);
    a.client.post_send(qp, a.send(2, 0, 100));
    for (int round = 0; round < 128; ++round) engine.poll(world.now());
    EXPECT_EQ(of_device().at("tx_messages"), before + 2);
    EXPECT_EQ(of_device().at("tx_frames"), frames + 2);
    using engine::Counter;
    EXPECT_EQ(engine.counters().get(Counter::tx_frames), frames + 2) << "the sum of all ports";
    EXPECT_EQ(engine.counters().get(Counter::rx_frames), engine.counters().get(wire::Verdict::ok));
    puppet.send_ack(0x101, 2);
    EXPECT_EQ(a.wait(2).size(), 2u);
}

struct FatalNak {
    uint8_t syndrome;
    const char* counter;
};
struct FatalNakTest : CountersTest, ::testing::WithParamInterface<FatalNak> {};

TEST_P(FatalNakTest, OfARequesterThatIsRefused) {
    join();
    for (uint64_t i = 0; i < 3; ++i) a.client.post_send(qp, a.send(i, 0, 100));
    agree("three SENDs");
    puppet.send_ack(0x101, 1, GetParam().syndrome);
    agree("the second one is refused");
    EXPECT_EQ(a.wait(3).size(), 3u);
    moved({GetParam().counter});
}
INSTANTIATE_TEST_SUITE_P(, FatalNakTest,
                         ::testing::Values(FatalNak{kNakInvalid, "remote_invalid_requests"},
                                           FatalNak{kNakAccess, "remote_access_errors"},
                                           FatalNak{kNakOperational, "remote_operation_errors"}),
                         [](const auto& p) { return std::string(p.param.counter); });

/// An error of the peer or of the local program. `counter` is the device counter of the resulting fault.
struct Refused {
    const char* counter;
    uint8_t nak;
    std::function<void(CountersTest&)> make;
};
const Refused kRefused[] = {
    {"request_invalid_succession", kNakInvalid,
     [](CountersTest& t) { t.puppet.send(Operation::write_last, t.at(t.first), bytes_of(10, 1)); }},
    {"request_bad_flush", kNakInvalid,
     [](CountersTest& t) { t.puppet.send(Operation::flush, t.write_at(t.first, t.a.mr.address(), t.a.mr.rkey, 64)); }},
    {"request_too_many_reads", kNakInvalid,
     [](CountersTest& t) {
         constexpr uint32_t kPackets = 100;  // packets per response: no response is complete when the fifth READ arrives
         for (uint32_t i = 0; i < 5; ++i)
             t.puppet.send(Operation::read_request,
                           t.write_at(t.first + i * kPackets, t.a.mr.address(), t.a.mr.rkey, kPackets * CountersTest::kMtu));
     }},
    {"request_bad_length", kNakInvalid,
     [](CountersTest& t) {
         t.puppet.send(Operation::write_only, t.write_at(t.first, t.a.mr.address(), t.a.mr.rkey, 11), bytes_of(10, 1));
     }},
    {"request_message_too_long", kNakInvalid,
     [](CountersTest& t) {
         t.recv(1, 0, 99);
         t.send_only(t.first, 100, 1);
     }},
    {"request_access", kNakAccess,
     [](CountersTest& t) {
         t.puppet.send(Operation::write_only, t.write_at(t.first, t.a.mr.address(), t.a.mr.rkey ^ 1, 10), bytes_of(10, 1));
     }},
    {"request_no_right", kNakInvalid,
     [](CountersTest& t) {
         t.puppet.send(Operation::write_only, t.write_at(t.first, t.a.mr.address(), t.a.mr.rkey, 10), bytes_of(10, 1));
     }},
    {"request_misaligned", kNakInvalid,
     [](CountersTest& t) { t.puppet.send(Operation::fetch_add, t.write_at(t.first, t.a.mr.address() + 4, t.a.mr.rkey, 0)); }},
    {"request_recv_protection", kNakOperational,
     [](CountersTest& t) {
         ASSERT_TRUE(t.a.client.post_recv(t.qp, 1, {{t.a.mr.address(), 100, t.a.mr.lkey ^ 0x55}}));
         t.send_only(t.first, 50, 1);
     }},
};
struct RefusedTest : CountersTest, ::testing::WithParamInterface<Refused> {};

TEST_P(RefusedTest, OfAResponderThatRefuses) {
    const Refused& r = GetParam();
    if (std::string(r.counter) == "request_no_right") path.access = IBV_ACCESS_LOCAL_WRITE;
    join();
    r.make(*this);
    agree(r.counter);
    EXPECT_EQ(of_device().at(r.counter), 1u);
    EXPECT_EQ(judge.naks_sent(r.nak & 3), 1u);
    moved({"requests_refused"});
}
INSTANTIATE_TEST_SUITE_P(, RefusedTest, ::testing::ValuesIn(kRefused),
                         [](const auto& p) { return std::string(p.param.counter); });

TEST_F(CountersTest, OfFramesThatAreDamagedOrMarked) {
    join();
    recv(1, 0, 100);
    wire::TransportHeaders h = at(first);
    const auto frame = puppet.build(wire::make_opcode(wire::Service::rc, Operation::send_only), h, bytes_of(10, 1));
    auto damaged = frame;
    damaged.back() ^= 1;
    puppet.send_raw(damaged);
    agree("a wrong ICRC");
    auto cut = frame;
    cut.resize(cut.size() - 4);
    puppet.send_raw(cut);
    agree("a frame that is cut");
    auto marked = frame;
    ASSERT_TRUE(mark(marked) || (marked[15] |= 1, mark(marked)));
    puppet.send_raw(marked);
    agree("a marked frame, which a notification answers");
    puppet.send_raw(puppet.build(wire::kCnpOpcode, {}));
    agree("a notification of the peer");
    moved({"rx_errors", "icrc_errors", "ecn_marked", "cnp_sent", "cnp_received"});
}

TEST_F(CountersTest, OfSomebodyElsesNotification) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    agree("a SEND");
    const uint8_t other[4] = {10, 9, 9, 9};
    wire::PathSpec s;
    s.source_mac = puppet.peer().mac;
    s.dest_mac = a.client.self(qp).mac;
    s.source_gid = Gid::from_ipv4(other);
    s.dest_gid = a.client.self(qp).gid;
    const wire::PathTemplate path_of_another = wire::make_path(s);
    wire::TransportHeaders h;
    h.opcode = wire::kCnpOpcode;
    h.dest_qp = Qpn{qp.qpn};
    std::vector<uint8_t> frame(wire::kMaxOverhead);
    uint8_t* p = wire::begin_frame(frame.data(), path_of_another, h, 0);
    frame.resize(wire::finish_frame(frame.data(), path_of_another, p, 0));
    puppet.send_raw(frame);
    agree("somebody else's notification");
    moved({"cnp_ignored"});
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

/// A requester without selective repeat. After a loss it goes back N.
struct CountersThatGoBack : CountersTest {
    static WorldOptions goes_back() {
        WorldOptions o = keeps_nothing();
        o.engine.selective_repeat = false;
        return o;
    }
    CountersThatGoBack() : CountersTest(goes_back()) {}
};

TEST_F(CountersThatGoBack, OfAResponseThatIsMissing) {
    join();
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_read, 1, 0, 100, 0x10000, 0x1234));
    a.client.post_send(qp, a.rdma(WrOpcode::rdma_write, 2, 0, 100, 0x10000, 0x1234));
    agree("a READ and a WRITE");
    puppet.send_ack(0x101, 2);
    agree("the ACK of the WRITE alone");
    moved({"implied_naks", "retransmits"});
    wire::TransportHeaders h = at(0x100);
    h.syndrome = 31;
    puppet.send(Operation::read_response_only, h, bytes_of(100, 1));
    agree("the response of the READ");
    puppet.send_ack(0x101, 2);
    agree("the ACK of the WRITE");
    EXPECT_EQ(a.wait(2).size(), 2u);
}

TEST_F(CountersThatGoBack, OfAMessageThatIsSentAgain) {
    join();
    for (uint64_t i = 0; i < 4; ++i) a.client.post_send(qp, a.send(i, 0, 100));
    agree("four SENDs");
    puppet.send_ack(0x101, 1, kNakSequence);
    agree("three of them again");
    puppet.send_ack(0x103, 4);
    EXPECT_EQ(a.wait(4).size(), 4u);
    moved({"retransmits"});
}

/// The requester retransmits after each timeout except the last one. After the last timeout no retry is left.
TEST_F(CountersTest, OfASilentPeer) {
    path.retry_cnt = 3;
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    EXPECT_EQ(a.wait_status(), WcStatus::retry_exc_err);
    agree("no answer");
    moved({"retransmits"});
    EXPECT_EQ(of_device().at("timeouts"), judge.of_device().at("retransmits") + 1);
    EXPECT_EQ(of_device().at("retry_exceeded"), 1u);
}

}  // namespace
}  // namespace roci::sim
