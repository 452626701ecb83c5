// Tests of connection management over a network that loses and duplicates messages.
#include "fixture.hpp"

namespace roci::cm {
namespace {

TEST(CmLossy, ServiceIdResolution) {
    World w;
    w.loss = 0.3;
    Listener l;
    l.service_id = service_id(PortSpace::udp, 5);
    l.owner = 99;
    w.b.listen(l);
    SidrSpec s;
    s.to = World::at(true);
    s.service_id = l.service_id;
    s.owner = 11;
    put_ip_header(s.private_data.data(), {4000, address(1), address(2)});
    w.on_event = [&](bool at_a, const Event& e) {
        if (at_a) return;
        const uint8_t data[] = {'d'};
        EXPECT_EQ(w.b.answer_service(e.connection, SidrStatus::valid, 0x44, 0x01234567, data, w.now), 0);
    };
    const uint32_t id = w.a.resolve_service(s, w.now);
    w.pass(10'000 * kMs);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::sidr_reply);
    EXPECT_EQ(w.events_a[0].qpn, 0x44u);
    EXPECT_EQ(w.events_a[0].qkey, 0x01234567u);
    EXPECT_EQ(w.events_a[0].private_data[0], 'd');
    EXPECT_EQ(w.events_b.size(), 1u);
    w.a.destroy(id, w.now);
    s.service_id = service_id(PortSpace::udp, 6);
    w.loss = 0;
    w.a.resolve_service(s, w.now);
    w.settle();
    EXPECT_EQ(w.events_a.back().reason, uint16_t(SidrStatus::invalid_service_id));
}

/// Connects and disconnects many times. Each end must get each event once and in the right order. At the end no
/// object may be left.
class Lossy : public testing::TestWithParam<std::pair<int, double>> {};

TEST_P(Lossy, EveryConnectionComesAndGoes) {
    World w(uint32_t(GetParam().first));
    w.loss = GetParam().second;
    w.duplicate = 0.2;
    w.listen();
    std::map<uint32_t, std::vector<Kind>> seen_a, seen_b;
    w.on_event = [&](bool at_a, const Event& e) {
        const Kind kind =
            e.kind == Kind::gone ? Kind::disconnected : e.kind;  // `gone` (the peer does not respond) counts as disconnected
        (at_a ? seen_a : seen_b)[e.connection].push_back(kind);
        if (e.kind == Kind::connect_request) {
            AcceptSpec s;
            s.qpn = 0x1000 + e.connection;
            EXPECT_EQ(w.b.accept(e.connection, s, w.now), 0);
        } else if (e.kind == Kind::reply) {
            EXPECT_EQ(w.a.ready(e.connection, w.now), 0);
        } else if (e.kind == Kind::disconnected) {
            (at_a ? w.a : w.b).disconnect(e.connection, w.now);
        }
    };
    constexpr uint32_t kConnections = 200;
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < kConnections; ++i) ids.push_back(w.a.connect(w.spec(100 + i), w.now));
    w.pass(80'000 * kMs);
    for (const uint32_t id : ids) {
        ASSERT_EQ(seen_a[id].size(), 1u) << id;
        if (seen_a[id][0] == Kind::reply) {
            EXPECT_EQ(w.a.disconnect(id, w.now), 0);
        } else {
            EXPECT_EQ(seen_a[id][0], Kind::unreachable);
        }
    }
    w.pass(200'000 * kMs);
    int good = 0;
    for (const uint32_t id : ids) {
        if (seen_a[id][0] != Kind::reply) continue;
        ++good;
        EXPECT_EQ(seen_a[id], (std::vector{Kind::reply, Kind::disconnected, Kind::timewait_exit}));
    }
    EXPECT_GE(good, int(kConnections) * 95 / 100);
    for (const auto& [id, kinds] : seen_b) {
        const bool whole =
            kinds == std::vector{Kind::connect_request, Kind::established, Kind::disconnected, Kind::timewait_exit};
        const bool no_rtu = kinds == std::vector{Kind::connect_request, Kind::disconnected, Kind::timewait_exit};
        const bool gave_up = kinds == std::vector{Kind::connect_request, Kind::unreachable} ||
                             kinds == std::vector{Kind::connect_request, Kind::rejected};
        EXPECT_TRUE(whole || no_rtu || gave_up) << id << " saw " << kinds.size() << " events";
    }
    for (const uint32_t id : ids) w.a.destroy(id, w.now);
    for (const auto& [id, kinds] : seen_b) w.b.destroy(id, w.now);
    w.pass(200'000 * kMs);
    EXPECT_EQ(w.a.connections(), 0u);
    EXPECT_EQ(w.b.connections(), 0u);
}

/// Even if half of all messages are lost, 90 of 100 connections must be established within 5 seconds, and 99 within 30 seconds.
TEST(CmLossy, HalfLostIsSlowButNotVerySlow) {
    for (int seed = 1; seed <= 20; ++seed) {
        World w{uint32_t(seed)};
        w.loss = 0.5;
        w.listen();
        int up = 0;
        w.on_event = [&](bool at_a, const Event& e) {
            if (e.kind == Kind::connect_request) {
                AcceptSpec s;
                s.qpn = 0x1000 + e.connection;
                EXPECT_EQ(w.b.accept(e.connection, s, w.now), 0);
            } else if (at_a && e.kind == Kind::reply) {
                EXPECT_EQ(w.a.ready(e.connection, w.now), 0);
                ++up;
            }
        };
        constexpr uint32_t kConnections = 100;
        for (uint32_t i = 0; i < kConnections; ++i) w.a.connect(w.spec(100 + i), w.now);
        w.pass(5'000 * kMs);
        EXPECT_GE(up, 90) << "seed " << seed;
        w.pass(25'000 * kMs);
        EXPECT_GE(up, 99) << "seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Lossy,
                         testing::Values(std::pair(1, 0.0), std::pair(2, 0.01), std::pair(3, 0.1), std::pair(4, 0.3),
                                         std::pair(5, 0.5), std::pair(6, 0.5)));

}  // namespace
}  // namespace roci::cm
