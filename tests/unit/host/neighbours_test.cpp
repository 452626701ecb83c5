// Tests of requests that need an unknown MAC address, of changed addresses, and of the replies that rocid sends on a
// port without a kernel interface.
#include "abi/cm_control.hpp"
#include "fixture.hpp"
#include "host/rdma_cm/service.hpp"

namespace roci::host::test {
namespace {

using abi::Op;
using neighbour::Kind;

constexpr Nanos kSecond = 1'000'000'000;
constexpr MacAddress kUs{{2, 0, 0, 0, 0, 1}}, kThem{{2, 0, 0, 0, 0, 0x99}};
constexpr Gid kThem4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 99}};
constexpr Gid kFar{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 1}};
constexpr Gid kGateway{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 254}};
constexpr uint32_t kGidChange = 18;

std::vector<DeviceConfig> devices(Resolver resolver) {
    auto all = two_devices();
    all[0].resolver = resolver;
    all[0].prefixes = {64, 0, 120};
    return all;
}

class NeighboursTest : public ConductorTest {
protected:
    explicit NeighboursTest(Resolver resolver = Resolver::own) : ConductorTest(small_limits(), devices(resolver)) {
        now = kSecond;
        shared.frames[0] = std::make_unique<io::FrameRing>(64);
        announced = port.frames;
        port.frames.clear();
    }
    /// Sends the request. Returns true if the conductor (rocid's control thread) defers the reply.
    bool waits(Op op, const auto& body) {
        bool close = false;
        return conductor.handle(session, packet(op, bytes_of(body)), {}, close).deferred;
    }
    abi::CreateAhRequest ah_to(const Gid& gid) { return {pd_, 0, good_av(gid)}; }
    std::optional<int> late_error() {
        uint32_t s = 0;
        Reply reply;
        bool close = false;
        if (!conductor.next_reply(s, reply, close)) return std::nullopt;
        EXPECT_EQ(s, session);
        abi::ReplyHeader h{};
        std::memcpy(&h, reply.bytes.data(), sizeof h);
        return h.error;
    }
    void arrive(const neighbour::Frame& f) {
        ASSERT_TRUE(shared.frames[0]->push(f));
        conductor.service(++now);
    }
    void they_answer(const neighbour::Frame& question) {
        const neighbour::Message m = neighbour::parse(question.bytes.data(), question.length);
        ASSERT_EQ(m.kind, Kind::solicitation);
        neighbour::Frame answer;
        neighbour::make_answer(answer, kThem, m);
        arrive(answer);
    }
    void run_until(Nanos end) {
        for (; now < end; now += kSecond / 4) conductor.service(now);
    }
    uint32_t pd_ = pd();
    std::vector<neighbour::Frame> announced;
};

TEST_F(NeighboursTest, ItsAddressesAreAnnounced) {
    ASSERT_EQ(announced.size(), 2u);
    for (const auto& f : announced) EXPECT_TRUE(neighbour::parse(f.bytes.data(), f.length).unsolicited);
}

TEST_F(NeighboursTest, ARequestWaitsForTheMacAndNobodyElseDoes) {
    conductor.service(now);
    ASSERT_TRUE(waits(Op::create_ah, ah_to(kThem4)));
    conductor.service(++now);
    ASSERT_EQ(port.frames.size(), 1u) << "asked once";
    EXPECT_FALSE(late_error());
    const uint32_t other = open();
    EXPECT_EQ(send(conductor, other, packet(Op::alloc_pd, {})).error, 0);
    they_answer(port.frames[0]);
    EXPECT_EQ(late_error(), 0);
    EXPECT_EQ(call(Op::create_ah, ah_to(kThem4)).error, 0) << "known now";
}

TEST_F(NeighboursTest, NobodyAnswers) {
    conductor.service(now);
    ASSERT_TRUE(waits(Op::create_ah, ah_to(kThem4)));
    run_until(now + 2 * kSecond);
    EXPECT_FALSE(late_error());
    run_until(now + 2 * kSecond);
    EXPECT_EQ(late_error(), ETIMEDOUT);
    EXPECT_EQ(port.frames.size(), 3u);
}

TEST_F(NeighboursTest, AQpGoesToRtrWhenTheMacIsKnown) {
    const auto q = qp();
    const Step init = to_init();
    Step rtr = to_rtr();
    rtr.attr.ah = good_av(kThem4);
    rtr.attr.ah.hop_limit = 1;
    ASSERT_EQ(modify(q.handle, init.mask, init.attr).error, 0);
    conductor.service(now);
    ASSERT_TRUE(waits(Op::modify_qp, abi::ModifyQpRequest{q.handle, rtr.mask, rtr.attr}));
    conductor.service(++now);
    they_answer(port.frames.at(0));
    EXPECT_EQ(late_error(), 0);
    const wire::PathTemplate& path = port.last_change.path;
    EXPECT_EQ(std::memcmp(path.bytes, kThem.bytes.data(), 6), 0);
    EXPECT_EQ(path.bytes[path.l3_offset + 8], 64) << "time to live, not the hop limit of the program";
}

TEST_F(NeighboursTest, ASessionThatEndsWaitsForNothing) {
    conductor.service(now);
    ASSERT_TRUE(waits(Op::create_ah, ah_to(kThem4)));
    close(session);
    run_until(now + 5 * kSecond);
    uint32_t s = 0;
    Reply reply;
    bool close = false;
    EXPECT_FALSE(conductor.next_reply(s, reply, close));
}

TEST_F(NeighboursTest, BeyondTheLinkThereIsNoWayWithoutAGateway) {
    const Result r = call(Op::create_ah, ah_to(kFar));
    EXPECT_EQ(r.error, ENETUNREACH);
    EXPECT_TRUE(r.says("gateway"));
}

TEST_F(NeighboursTest, AnIdOfRdmaCmResolvesByAnEvent) {
    const uint32_t channel = handle_of(send(conductor, session, packet(Op::cm_open_channel, {})));
    const auto resolve = [&](uint32_t timeout_ms) {
        const uint32_t id = handle_of(call(Op::cm_create_id, abi::CmCreateIdRequest{channel, 0x106, IBV_QPT_RC, 0}));
        abi::CmResolveRequest in{};
        in.id = id;
        in.timeout_ms = timeout_ms;
        in.dest = rdma_cm::to_address(kThem4, 7471);
        EXPECT_EQ(call(Op::cm_resolve_addr, in).error, 0);
        EXPECT_EQ(on(Op::cm_get_event, channel).error, EAGAIN) << "not yet";
        return id;
    };
    conductor.service(now);
    resolve(500);
    run_until(now + kSecond);
    auto e = on(Op::cm_get_event, channel).as<abi::CmEventReply>();
    EXPECT_EQ(e.event, uint32_t(rdma_cm::CmEventType::addr_error));
    EXPECT_EQ(e.status, -ETIMEDOUT);
    resolve(2000);
    conductor.service(++now);
    they_answer(port.frames.at(0));
    e = on(Op::cm_get_event, channel).as<abi::CmEventReply>();
    EXPECT_EQ(e.event, uint32_t(rdma_cm::CmEventType::addr_resolved));
}

TEST_F(NeighboursTest, AnswersForItsOwnAddressesOnly) {
    for (const Gid& g : {kGid4, kGid6, kGateway}) {
        neighbour::Frame ask;
        neighbour::make_solicitation(
            ask, {kThem, g.is_ipv4() ? kThem4 : Gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}}}, g, {});
        port.frames.clear();
        arrive(ask);
        if (g == kGateway) {
            EXPECT_TRUE(port.frames.empty());
            continue;
        }
        ASSERT_EQ(port.frames.size(), 1u);
        const auto m = neighbour::parse(port.frames[0].bytes.data(), port.frames[0].length);
        EXPECT_EQ(m.kind, Kind::advertisement);
        EXPECT_EQ(m.target, g);
        EXPECT_EQ(m.link, kUs);
    }
    port.frames.clear();
    EXPECT_EQ(call(Op::create_ah, ah_to(kThem4)).error, 0) << "who asked us is known";
}

TEST_F(NeighboursTest, AddressesComeAndGoAndKeepTheirIndex) {
    const uint32_t elsewhere = open(1);
    const DeviceAddress some[] = {{kGid4, 120}, {kThem4, 120}};
    EXPECT_TRUE(conductor.set_addresses(0, some));
    const auto table = call(Op::query_gid_table).as<abi::QueryGidTableReply>();
    ASSERT_EQ(table.count, 2u);
    EXPECT_EQ(table.entry[0].index, 0u);
    EXPECT_EQ(std::memcmp(table.entry[0].gid.raw, kThem4.bytes.data(), 16), 0) << "takes the place that became free";
    EXPECT_EQ(table.entry[1].index, 2u) << "stays where it was";
    const auto* own = shared.addresses.find(0);
    EXPECT_EQ(own->gids.at(0), kThem4);
    EXPECT_EQ(own->gids.at(2), kGid4);
    ASSERT_EQ(platform.asyncs.size(), 1u);
    EXPECT_EQ(platform.asyncs[0], (std::pair<uint32_t, uint32_t>{session, kGidChange}));
    EXPECT_FALSE(conductor.set_addresses(0, some)) << "nothing new";
    EXPECT_EQ(platform.asyncs.size(), 1u);
    close(elsewhere);
}

TEST_F(NeighboursTest, LinkChangesReachPortStateAndPrograms) {
    constexpr uint32_t kPortActive = 9, kPortError = 10, kDown = 1, kActive = 4;
    const uint32_t elsewhere = open(1);
    EXPECT_FALSE(conductor.set_link(0, true, shared.addresses.find(0)->mtu_bytes)) << "nothing new";
    EXPECT_TRUE(conductor.set_link(0, false, 1024));
    auto p = call(Op::query_port).as<abi::PortAttr>();
    EXPECT_EQ(p.state, kDown);
    EXPECT_EQ(p.active_mtu, 3u);
    EXPECT_EQ(shared.addresses.find(0)->mtu_bytes, 1024u);
    EXPECT_TRUE(conductor.set_link(0, true, 1024));
    EXPECT_EQ(call(Op::query_port).as<abi::PortAttr>().state, kActive);
    EXPECT_TRUE(conductor.set_link(0, true, 2048));
    const std::vector<std::pair<uint32_t, uint32_t>> told{{session, kPortError}, {session, kPortActive}};
    EXPECT_EQ(platform.asyncs, told) << "sessions of that device only, and not of an MTU";
    close(elsewhere);
}

template <class T>
bool same(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_F(NeighboursTest, TheDevicePageShowsAChangeBeforeItsEvent) {
    const auto table = [&] { return call(Op::query_gid_table).as<abi::QueryGidTableReply>(); };
    const auto port_attr = [&] { return call(Op::query_port).as<abi::PortAttr>(); };
    EXPECT_TRUE(same(platform.published[0].gids, table())) << "published at the start";
    EXPECT_TRUE(same(platform.published[0].port, port_attr()));
    EXPECT_EQ(platform.published[1].gids.count, 1u);

    const DeviceAddress some[] = {{kGid4, 120}, {kThem4, 120}};
    ASSERT_TRUE(conductor.set_addresses(0, some));
    ASSERT_EQ(platform.published_at_async.size(), 1u);
    EXPECT_TRUE(same(platform.published_at_async[0][0].gids, table()));

    ASSERT_TRUE(conductor.set_link(0, false, 1024));
    ASSERT_EQ(platform.published_at_async.size(), 2u);
    EXPECT_EQ(platform.published_at_async[1][0].port.state, uint32_t(IBV_PORT_DOWN));
    EXPECT_TRUE(same(platform.published_at_async[1][0].port, port_attr()));

    ASSERT_TRUE(conductor.set_link(0, false, 2048));
    EXPECT_TRUE(same(platform.published[0].port, port_attr())) << "a changed MTU without an event";
}

class KernelNeighboursTest : public NeighboursTest {
protected:
    KernelNeighboursTest() : NeighboursTest(Resolver::kernel) {}
};

TEST_F(KernelNeighboursTest, TheKernelIsAskedAndTheGatewayTaken) {
    platform.gateway = kGateway;
    conductor.service(now);
    ASSERT_TRUE(waits(Op::create_ah, ah_to(kFar)));
    conductor.service(++now);
    ASSERT_EQ(platform.solicited.size(), 1u);
    EXPECT_EQ(platform.solicited[0], kGateway);
    EXPECT_TRUE(port.frames.empty()) << "rocid itself is silent";
    conductor.neighbour_heard(0, kGateway, kThem, now);
    conductor.service(++now);
    EXPECT_EQ(late_error(), 0);
    now += 100 * kSecond;  // the kernel's report is the first event of the conductor after a long time
    conductor.neighbour_gone(0, kGateway, now);
    conductor.service(now);
    EXPECT_EQ(call(Op::create_ah, ah_to(kFar)).error, ETIMEDOUT);
    platform.route_error = ENETUNREACH;
    EXPECT_EQ(call(Op::create_ah, ah_to(kFar)).error, ENETUNREACH);
}

}  // namespace
}  // namespace roci::host::test
