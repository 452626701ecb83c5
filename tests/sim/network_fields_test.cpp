// Tests of the frame fields that switches and routers read or write (VLAN tag, priority, traffic class, congestion
// marks), and of the counters for these fields.
#include <functional>

#include "fixture.hpp"

namespace roci::sim {
namespace {

constexpr uint16_t kVlan = 100;
constexpr uint8_t kDefaultClass = 0x6a;  // DSCP 26, ECN-capable

uint16_t tag_of(const std::vector<uint8_t>& frame) {
    return load_be<uint16_t>(&frame[12]) == wire::kEtherVlan ? load_be<uint16_t>(&frame[14]) : 0;
}
uint8_t class_of(const Sent& s) { return s.packet.ipv6 ? uint8_t(load_be<uint16_t>(s.packet.l3) >> 4) : s.packet.l3[1]; }

struct VlanTest : StrangersTest {
    VlanTest() : StrangersTest(WorldOptions{.resolver = host::Resolver::own, .vlan = kVlan, .traffic_class = kDefaultClass}) {}
    std::vector<Sent> seen;
    void SetUp() override {
        world.net().set_script([this](const Sent& s) {
            seen.push_back(s);
            if (s.parsed) {  // makes the packet point into the copied bytes
                const auto moved = [&](const uint8_t* p) { return seen.back().bytes.data() + (p - s.bytes.data()); };
                seen.back().packet.l3 = moved(s.packet.l3);
            }
            return Verdict{};
        });
    }
    /// Makes the hosts resolve each other's MAC addresses. Then sends one message.
    void talk(uint32_t gid_index) {
        join_strangers(gid_index);
        send_one();
    }
};

TEST_F(VlanTest, EverythingIsTaggedAndHeardOverIpv4) {
    talk(0);
    ASSERT_GT(seen.size(), 6u);
    for (const Sent& s : seen) EXPECT_EQ(tag_of(s.bytes), kVlan) << s.text();
    EXPECT_EQ(world.host(1).counter(engine::Counter::wrong_vlan), 0u);
}

TEST_F(VlanTest, EverythingIsTaggedAndHeardOverIpv6) {
    talk(1);
    for (const Sent& s : seen) EXPECT_EQ(tag_of(s.bytes), kVlan) << s.text();
}

TEST_F(VlanTest, TheTrafficClassOfTheDeviceIsForThoseWhoAskForNone) {
    for (const uint32_t gid_index : {0u, 1u}) {
        seen.clear();
        talk(gid_index);
        std::erase_if(seen, [](const Sent& s) { return !s.parsed; });
        for (const Sent& s : seen) EXPECT_EQ(class_of(s), kDefaultClass) << s.text();
        a.client.to_state(qa, IBV_QPS_RESET);
        b.client.to_state(qb, IBV_QPS_RESET);
    }
}

TEST_F(VlanTest, ADatagramsReceiverFindsTheTrafficClass) {
    constexpr uint32_t kQkey = 0x11111111;
    Qp& from = a.qp({.type = IBV_QPT_UD});
    Qp& to = b.qp({.type = IBV_QPT_UD});
    for (auto [side, q] : {std::pair{&a, &from}, std::pair{&b, &to}}) {
        abi::QpAttr t{};
        t.qp_state = IBV_QPS_INIT;
        t.port_num = 1;
        t.qkey = kQkey;
        ASSERT_EQ(side->client.try_modify(*q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, t), 0);
        side->client.to_state(*q, IBV_QPS_RTR);
        t.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(side->client.try_modify(*q, IBV_QP_STATE | IBV_QP_SQ_PSN, t), 0);
    }
    b.client.post_recv(to, 1, {b.sge(0, 140)});
    SendWr w = a.send(5, 0, 100);
    w.ah = a.client.create_ah(a.pd, b.client.self(to));
    w.remote_qpn = to.qpn;
    w.remote_qkey = kQkey;
    a.client.post_send(from, w);
    ASSERT_EQ(b.wait(1).size(), 1u);
    EXPECT_EQ(b.mr.data()[20] >> 4, 4) << "the IPv4 header within the GRH";
    EXPECT_EQ(b.mr.data()[21], kDefaultClass);
}

struct FieldsTest : PuppetTest {
    static constexpr uint32_t kFirst = 0x100;
    uint64_t count(engine::Counter c) { return world.host(0).counter(c); }
    std::vector<uint8_t> message(uint32_t bytes = 10) {
        wire::TransportHeaders h;
        h.psn = Psn(kFirst);
        h.ack_request = true;
        return puppet.build(wire::make_opcode(wire::Service::rc, Operation::send_only), h, bytes_of(bytes, 1));
    }
    static std::vector<uint8_t> tagged(std::vector<uint8_t> frame, uint16_t tag) {
        const uint8_t bytes[4] = {0x81, 0, uint8_t(tag >> 8), uint8_t(tag)};
        frame.insert(frame.begin() + 12, std::begin(bytes), std::end(bytes));
        return frame;
    }
    void SetUp() override {
        join();
        ASSERT_TRUE(a.client.post_recv(qp, 1, {a.sge(0, 4096)}));
    }
};

TEST_F(FieldsTest, AFrameOfAVlanIsNotForAnUntaggedDevice) {
    puppet.send_raw(tagged(message(), 7));
    EXPECT_TRUE(puppet.listen(100'000).empty());
    EXPECT_EQ(count(engine::Counter::wrong_vlan), 1u);
    puppet.send_raw(tagged(message(), 5 << 13));  // a priority tag with VLAN ID 0
    EXPECT_EQ(puppet.listen(100'000).size(), 1u) << "acknowledged";
}

TEST_F(FieldsTest, MorePayloadThanThePathMtuIsCountedAndRefused) {
    puppet.send_raw(message(kMtu + 4));
    const auto got = puppet.listen(100'000);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].packet.syndrome, kNakInvalid);
    EXPECT_EQ(count(engine::Counter::over_path_mtu), 1u);
}

TEST_F(FieldsTest, EachFaultOfAFrameHasItsCounter) {
    constexpr size_t kFlags = 20, kChecksum = 24, kUdpLength = 38;  // offsets in an untagged IPv4 frame
    const std::pair<wire::Verdict, std::function<void(std::vector<uint8_t>&)>> faults[] = {
        {wire::Verdict::ip_fragment, [](auto& f) { f[kFlags] |= 0x20; }},
        {wire::Verdict::bad_ip_checksum, [](auto& f) { f[kChecksum] ^= 1; }},
        {wire::Verdict::bad_udp_length, [](auto& f) { f[kUdpLength + 1] ^= 4; }},
        {wire::Verdict::bad_icrc, [](auto& f) { f.back() ^= 1; }},
        {wire::Verdict::truncated, [](auto& f) { f.erase(f.end() - 4, f.end()); }},
    };
    for (const auto& [verdict, spoil] : faults) {
        SCOPED_TRACE(wire::verdict_name(verdict));
        auto frame = message();
        spoil(frame);
        puppet.send_raw(frame);
        EXPECT_TRUE(puppet.listen(100'000).empty());
        EXPECT_EQ(world.host(0).counter(verdict), 1u);
    }
    puppet.send_raw(message());
    EXPECT_EQ(puppet.listen(100'000).size(), 1u) << "none of them did harm";
}

TEST_F(FieldsTest, CongestionMarksAndNotificationsAreCounted) {
    auto marked = message();
    marked[15] |= 3;  // sets the ECN bits of the IPv4 header, which the ICRC does not cover
    uint32_t sum = load_be<uint16_t>(&marked[24]);
    sum = sum >= 3 ? sum - 3 : sum + 0xfffc;  // subtracts 3 in one's complement (RFC 1624)
    store_be<uint16_t>(&marked[24], uint16_t(sum));
    puppet.send_raw(marked);
    const auto answers = puppet.listen(100'000);
    ASSERT_EQ(answers.size(), 2u) << "the ICRC leaves the field out (A17.3.3)";
    EXPECT_EQ(answers[0].packet.opcode, wire::kCnpOpcode);
    EXPECT_TRUE(answers[0].packet.becn);
    EXPECT_EQ(answers[1].packet.opcode, wire::make_opcode(wire::Service::rc, Operation::ack));
    EXPECT_EQ(count(engine::Counter::ecn_marked), 1u);
    puppet.send_raw(puppet.build(wire::kCnpOpcode, {}));
    EXPECT_TRUE(puppet.listen(100'000).empty());
    EXPECT_EQ(count(engine::Counter::cnp_received), 1u);
    EXPECT_EQ(count(engine::Counter::wrong_service), 0u);
}

TEST_F(FieldsTest, AnybodysNotificationIsNobodys) {
    wire::PathSpec s;
    s.source_mac = puppet.peer().mac;
    s.dest_mac = a.client.self(qp).mac;
    const uint8_t other[4] = {10, 9, 9, 9};
    s.source_gid = Gid::from_ipv4(other);
    s.dest_gid = a.client.self(qp).gid;
    wire::TransportHeaders h;
    h.opcode = wire::kCnpOpcode;
    h.dest_qp = Qpn{qp.qpn};
    std::vector<uint8_t> frame(wire::kMaxOverhead);
    const wire::PathTemplate path_of_another = wire::make_path(s);
    uint8_t* p = wire::begin_frame(frame.data(), path_of_another, h, 0);
    frame.resize(wire::finish_frame(frame.data(), path_of_another, p, 0));
    puppet.send_raw(frame);
    EXPECT_TRUE(puppet.listen(100'000).empty());
    EXPECT_EQ(count(engine::Counter::cnp_received), 0u);
    EXPECT_EQ(count(engine::Counter::wrong_address), 1u);
}

}  // namespace
}  // namespace roci::sim
