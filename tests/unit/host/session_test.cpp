// Tests of sessions, opened devices, the format of messages, the status, and the end of a session.
#include <nlohmann/json.hpp>

#include "fixture.hpp"

namespace roci::host::test {
namespace {

using abi::Op;

class SessionTest : public ConductorTest {};

TEST_F(SessionTest, HelloAnswersWithTheRangeOfVersions) {
    const uint32_t s = connect();
    const Result r = call_as(s, Op::hello, good_hello());
    EXPECT_EQ(r.error, 0);
    EXPECT_EQ(r.cookie, 5u);
    const auto h = r.as<abi::HelloReply>();
    EXPECT_EQ(h.abi_min, abi::kAbiVersion);
    EXPECT_EQ(h.abi_max, abi::kAbiVersion);
    EXPECT_EQ(h.devices, 2u);
    EXPECT_EQ(h.engines, 2u);
    EXPECT_EQ(call_as(s, Op::hello, good_hello()).error, EINVAL) << "only once";
}

TEST_F(SessionTest, AWrongVersionGetsTheRangeAndASentenceWithBothNumbers) {
    auto hello = good_hello();
    hello.abi_version = 77;
    const Result r = call_as(connect(), Op::hello, hello);
    EXPECT_EQ(r.error, EPROTO);
    EXPECT_TRUE(r.closed);
    EXPECT_EQ(r.as<abi::HelloReply>().abi_max, abi::kAbiVersion);
    EXPECT_TRUE(r.says("77") && r.says("version " + std::to_string(abi::kAbiVersion))) << r.reason;
}

TEST_F(SessionTest, AnOldClientsShortHelloIsUnderstood) {
    const uint32_t s = connect();
    auto body = bytes_of(good_hello());
    body.resize(8);
    EXPECT_EQ(send(conductor, s, packet(Op::hello, body)).error, 0);
}

TEST_F(SessionTest, SessionsThatTookTheirOwnQueuesAwayAreNamed) {
    const uint32_t other = open();
    cq();
    EXPECT_TRUE(conductor.sessions_without_memory().empty());
    platform.lost.insert(std::prev(platform.memory.end())->first);
    const auto named = conductor.sessions_without_memory();
    ASSERT_EQ(named.size(), 1u);
    EXPECT_TRUE(named.front() == session || named.front() == other);
    for (const auto& [base, length] : platform.memory) platform.lost.insert(base);
    EXPECT_EQ(conductor.sessions_without_memory().size(), 2u);
}

TEST_F(SessionTest, StrangersAreClosed) {
    auto hello = good_hello();
    hello.magic = 1;
    const Result r = call_as(connect(), Op::hello, hello);
    EXPECT_EQ(r.error, EPROTO);
    EXPECT_TRUE(r.closed);
}

TEST_F(SessionTest, OrderOfTheFirstMessages) {
    const uint32_t s = connect();
    EXPECT_EQ(call_as(s, Op::list_devices, abi::HandleRequest{}).error, EPROTO);
    EXPECT_EQ(call_as(s, Op::alloc_pd, abi::HandleRequest{}).error, EPROTO);
    EXPECT_EQ(call_as(s, Op::hello, good_hello()).error, 0);
    const Result r = call_as(s, Op::alloc_pd, abi::HandleRequest{});
    EXPECT_EQ(r.error, ENODEV);
    EXPECT_TRUE(r.says("open_device"));
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{2, 0}).error, ENODEV);
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{1, 0}).error, 0);
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{1, 0}).error, EBUSY);
}

TEST_F(SessionTest, ListDevices) {
    const Result r = call(Op::list_devices);
    ASSERT_EQ(r.error, 0);
    EXPECT_EQ(r.body.size(), 8 + 2 * sizeof(abi::DeviceEntry)) << "only what there is";
    const auto list = r.as<abi::ListDevicesReply>();
    ASSERT_EQ(list.count, 2u);
    EXPECT_STREQ(list.device[0].name, "roci0");
    EXPECT_STREQ(list.device[0].netdev, "eth0");
    EXPECT_STREQ(list.device[1].name, "roci1");
    EXPECT_EQ(list.device[1].index, 1u);
    const uint8_t guid[8] = {0, 0, 0, 0xff, 0xfe, 0, 0, 1};
    EXPECT_EQ(std::memcmp(&list.device[0].node_guid, guid, 8), 0);
}

TEST_F(SessionTest, OpenDeviceHandsOverItsDescriptorsInOrder) {
    const uint32_t s = connect();
    call_as(s, Op::hello, good_hello());
    port.log.clear();
    const int first = platform.next_fd;
    const Result r = call_as(s, Op::open_device, abi::OpenDeviceRequest{0, 0});
    ASSERT_EQ(r.error, 0);
    ASSERT_EQ(r.fds.size(), 5u);  // the async socket, the engine page, the doorbells, two wake eventfds
    EXPECT_EQ(r.fds[1], 7);
    EXPECT_EQ(r.fds[2], first);  // the memory of the doorbells was created first
    EXPECT_EQ(r.as<abi::OpenDeviceReply>().engines, 2u);
    EXPECT_EQ(r.as<abi::OpenDeviceReply>().session, s);
    EXPECT_EQ(r.as<abi::OpenDeviceReply>().doorbell_stride, sizeof(abi::DoorbellPage));
    EXPECT_EQ(port.count(kind_of<engine::AttachSession>), 2u);
}

TEST_F(SessionTest, AFailedOpenLeavesNothing) {
    const uint32_t s = connect();
    call_as(s, Op::hello, good_hello());
    const size_t memory = platform.memory.size(), pipes = platform.pipes.size(), wakes = platform.wake.size();
    platform.refuse_fds = true;
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{0, 0}).error, EMFILE);
    platform.refuse_fds = false;
    platform.refuse_memory = true;
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{0, 0}).error, ENOMEM);
    platform.refuse_memory = false;
    port.refuse = kind_of<engine::AttachSession>;
    port.refuse_engine = 1;
    port.refuse_error = ENOSPC;
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{0, 0}).error, ENOSPC);
    port.refuse_engine = ~0u;
    EXPECT_EQ(platform.memory.size(), memory);
    EXPECT_EQ(platform.pipes.size(), pipes);
    EXPECT_EQ(platform.wake.size(), wakes);
    EXPECT_EQ(port.count(kind_of<engine::DetachSession>), 2u + 1u) << "both engines after EMFILE, engine 0 after the refusal";
    EXPECT_EQ(call_as(s, Op::open_device, abi::OpenDeviceRequest{0, 0}).error, 0) << "and it can be tried again";
}

TEST_F(SessionTest, MalformedPackets) {
    EXPECT_EQ(send(conductor, session, {}).error, EINVAL);
    EXPECT_EQ(send(conductor, session, std::vector<std::byte>(7)).error, EINVAL);
    EXPECT_EQ(send(conductor, session, std::vector<std::byte>(abi::kMaxMessage + 1)).error, EMSGSIZE);
    EXPECT_EQ(call(Op(0)).error, EOPNOTSUPP);
    EXPECT_EQ(call(Op::last_op).error, EOPNOTSUPP);
    EXPECT_EQ(call(Op(65535)).error, EOPNOTSUPP);
    const Result r = call(Op::dealloc_pd);
    EXPECT_EQ(r.error, EINVAL);
    EXPECT_TRUE(r.says("dealloc_pd") && r.says("8")) << r.reason;
}

TEST_F(SessionTest, UnknownFieldsMustBeZero) {
    auto body = bytes_of(abi::CreateCqRequest{1, abi::kNoHandle, 0, 0});
    body.resize(body.size() + 16);
    EXPECT_EQ(send(conductor, session, packet(Op::create_cq, body)).error, 0);
    body.back() = std::byte{1};
    EXPECT_EQ(send(conductor, session, packet(Op::create_cq, body)).error, E2BIG);
}

TEST_F(SessionTest, DescriptorsAreClosedWhenNobodyTakesThem) {
    EXPECT_EQ(call(Op::alloc_pd, abi::HandleRequest{}, {500, 501}).error, EINVAL);
    EXPECT_EQ(call(Op::add_region, abi::AddRegionRequest{4096, 1, 0}, {502, 503}).error, EINVAL);
    EXPECT_EQ(call(Op::add_region, abi::AddRegionRequest{4096, 1, 0}).error, EBADF);
    send(conductor, 9999, packet(Op::hello, {}), {504});
    send(conductor, session, {}, {505});
    EXPECT_EQ(platform.taken, (std::set<int>{500, 501, 502, 503, 504, 505}));
}

TEST_F(SessionTest, UnknownSession) {
    const Result r = send(conductor, 9999, packet(Op::hello, bytes_of(good_hello())));
    EXPECT_EQ(r.error, ENOTCONN);
    EXPECT_TRUE(r.closed);
    close(9999);
}

TEST_F(SessionTest, SessionNumbersAreNotReused) {
    std::set<uint32_t> seen;
    for (int i = 0; i < 100; ++i) {
        const uint32_t s = conductor.open_session({});
        EXPECT_TRUE(seen.insert(s).second);
        close(s);
    }
}

TEST_F(SessionTest, QueryDevicePortAndGids) {
    const auto d = call(Op::query_device).as<abi::DeviceAttr>();
    EXPECT_EQ(d.phys_ports, 1u);
    EXPECT_EQ(d.max_qp_wr, 1024u);
    EXPECT_EQ(d.max_cqe, 4096u);
    EXPECT_LE(d.max_mr, 511u);
    EXPECT_LE(d.max_qp, 256u - 0x11);
    EXPECT_LE(d.max_mw, 511u);
    EXPECT_EQ(d.device_cap_flags & IBV_DEVICE_XRC, uint64_t(IBV_DEVICE_XRC));
    const auto p = call(Op::query_port).as<abi::PortAttr>();
    EXPECT_EQ(p.state, uint32_t(IBV_PORT_ACTIVE));
    EXPECT_EQ(p.active_mtu, uint32_t(IBV_MTU_4096));
    EXPECT_GE(p.gid_table_length, 3u);
    EXPECT_EQ(p.pkey_table_length, 1u);
    EXPECT_EQ(call(Op::query_port, abi::HandleRequest{2, 0}).error, EINVAL);
    const auto g = call(Op::query_gid_table).as<abi::QueryGidTableReply>();
    ASSERT_EQ(g.count, 2u) << "the empty entry is left out";
    EXPECT_EQ(g.entry[0].index, 0u);
    EXPECT_EQ(g.entry[1].index, 2u);
    EXPECT_EQ(std::memcmp(g.entry[1].gid.raw, kGid4.bytes.data(), 16), 0);
    EXPECT_EQ(g.entry[1].type, 2u);
    EXPECT_STREQ(g.entry[1].netdev, "eth0");
}

TEST_F(SessionTest, OnlyAClientThatAsksForTheDevicePageGetsIt) {
    constexpr int kPage = 77;
    const auto reply_to = [&](uint32_t wishes) {
        const uint32_t s = connect();
        EXPECT_EQ(call_as(s, Op::hello, good_hello()).error, 0);
        return call_as(s, Op::open_device, abi::OpenDeviceRequest{0, wishes});
    };
    const size_t without = reply_to(abi::kWantsDevicePage).fds.size();
    platform.page_fd = kPage;
    const Result asked = reply_to(abi::kWantsDevicePage), unasked = reply_to(0);
    EXPECT_EQ(asked.fds.size(), without + 1);
    EXPECT_EQ(asked.fds.back(), kPage);
    EXPECT_NE(asked.as<abi::OpenDeviceReply>().flags & abi::kDevicePage, 0u);
    EXPECT_EQ(unasked.fds.size(), without);
    EXPECT_EQ(unasked.as<abi::OpenDeviceReply>().flags & abi::kDevicePage, 0u);
}

TEST_F(SessionTest, ActiveMtuIsTheLargestThatFits) {
    session = open(1);
    EXPECT_EQ(call(Op::query_port).as<abi::PortAttr>().active_mtu, uint32_t(IBV_MTU_1024)) << "1500 bytes: 1024";
}

TEST_F(SessionTest, StatusIsJsonThatNamesTheProgramAndItsQps) {
    const auto made = qp();
    ASSERT_EQ(modify(made.handle, to_init().mask, to_init().attr).error, 0);
    ASSERT_EQ(modify(made.handle, to_rtr().mask, to_rtr().attr).error, 0);
    const Result r = call(Op::status);
    ASSERT_EQ(r.error, 0);
    ASSERT_EQ(r.fds.size(), 1u);
    const auto j = nlohmann::json::parse(platform.status);
    EXPECT_EQ(j["devices"][0]["name"], "roci0");
    EXPECT_EQ(j["devices"][0]["mac"], "02:00:00:00:00:01");
    EXPECT_EQ(j["devices"][0]["gids"][1]["gid"], "::ffff:10.0.0.1");
    const auto& s = j["sessions"][0];
    EXPECT_EQ(s["pid"], 42);
    EXPECT_EQ(s["program"], "unit test");
    EXPECT_EQ(s["objects"]["qps"], 1);
    EXPECT_EQ(s["qps"][0]["qpn"], made.qpn);
    EXPECT_EQ(s["qps"][0]["state"], "RTR");
    EXPECT_EQ(s["qps"][0]["peer"]["gid"], "::ffff:10.0.0.2");
    EXPECT_EQ(s["qps"][0]["counters"]["retransmits"], 0);
    EXPECT_FALSE(j.contains("host")) << "the client is not privileged";
    EXPECT_EQ(nlohmann::json::parse(conductor.status_json())["host"]["lcores"], 2);
    platform.host_json = "{ broken";
    EXPECT_EQ(nlohmann::json::parse(conductor.status_json())["host"], "{ broken");
}

TEST_F(SessionTest, StatusAsksForAllQpsBeforeItWaits) {
    constexpr size_t kQps = 150;  // 75 on each of the two engines
    for (size_t i = 0; i < kQps; ++i) qp();
    port.log.clear();
    port.waits = 0;
    const auto j = nlohmann::json::parse(conductor.status_json());
    const auto& rows = j["sessions"][0]["qps"];
    ASSERT_EQ(rows.size(), kQps);
    for (const auto& row : rows) EXPECT_EQ(row["psn"]["send"], 11);
    EXPECT_EQ(port.log.size(), kQps);
    EXPECT_EQ(port.count(kind_of<engine::QueryQp>), kQps);
    EXPECT_EQ(port.waits, 2u) << "once per engine";
}

TEST_F(SessionTest, AProgramsNameCannotBreakTheStatus) {
    const uint32_t s = connect();
    auto hello = good_hello();
    std::memset(hello.program, 0xff, sizeof hello.program);
    call_as(s, Op::hello, hello);
    const auto j = nlohmann::json::parse(conductor.status_json());
    EXPECT_EQ(j["sessions"][1]["program"], std::string(64, '?'));
}

TEST_F(SessionTest, ClosingTakesEverythingBackInOrder) {
    const uint32_t p = pd();
    const uint32_t channel = handle_of(call(Op::create_channel));
    const uint32_t q = cq(16, channel);
    const uint32_t r = region(1 << 20);
    struct {
        abi::RegMrRequest mr;
        abi::MrSegment segment;
    } reg{{p, IBV_ACCESS_LOCAL_WRITE, 0x1000, 0x2000, 1, 0}, {r, 0, 0, 0x2000}};
    const uint32_t lkey = call(Op::reg_mr, reg).as<abi::RegMrReply>().lkey;
    const uint32_t srq = call(Op::create_srq, abi::CreateSrqRequest{p, 0, 8, 1, 0, abi::kNoHandle, abi::kNoHandle, 0, 0})
                             .as<abi::CreateSrqReply>()
                             .handle;
    auto want = qp_request(p, q);
    want.srq = srq;
    const auto made = call(Op::create_qp, want).as<abi::CreateQpReply>();
    const uint32_t ah = handle_of(call(Op::create_ah, abi::CreateAhRequest{p, 0, good_av()}));
    ASSERT_NE(shared.qps.find(made.qpn), nullptr);
    ASSERT_NE(shared.keys.find(Key{lkey}), nullptr);
    ASSERT_NE(shared.ahs.find(ah), nullptr);
    EXPECT_GT(conductor.totals().arena_bytes, 0u);
    EXPECT_EQ(conductor.totals().mapped_bytes, 1u << 20);

    port.log.clear();
    close(session);
    EXPECT_EQ(shared.qps.find(made.qpn), nullptr);
    EXPECT_EQ(shared.keys.find(Key{lkey}), nullptr);
    EXPECT_EQ(shared.ahs.find(ah), nullptr);
    std::vector<Kind> kinds;
    for (const auto& record : port.log) {
        if (kinds.empty() || kinds.back() != record.kind) kinds.push_back(record.kind);
    }
    using namespace engine;
    EXPECT_EQ(kinds, (std::vector{kind_of<RemoveQp>, kind_of<RemoveSrq>, Kind::fence, kind_of<DetachSession>}));
    expect_nothing_left();
    EXPECT_TRUE(platform.clean());
}

class FewSessions : public ConductorTest {
protected:
    static Limits two() {
        Limits l = small_limits();
        l.max_sessions = 2;
        return l;
    }
    FewSessions() : ConductorTest(two()) {}
};

TEST_F(FewSessions, TheLimitHolds) {
    EXPECT_NE(connect(), abi::kNoHandle);
    EXPECT_EQ(connect(), abi::kNoHandle);
    close(session);
    EXPECT_NE(connect(), abi::kNoHandle);
}

}  // namespace
}  // namespace roci::host::test
