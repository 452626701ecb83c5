// Two communication managers over a seeded lossy network in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "cm/manager.hpp"

namespace roci::cm {
namespace {

using Kind = Event::Kind;

constexpr Nanos kMs = 1'000'000;
constexpr uint64_t kService = service_id(PortSpace::tcp, 7174);

Gid address(uint8_t last) {
    const uint8_t four[] = {10, 77, 0, last};
    return Gid::from_ipv4(four);
}

struct World {
    explicit World(uint32_t seed = 1, uint32_t max = 65536) : rng(seed), a(config(100, max)), b(config(500000, max)) {}
    static Config config(uint32_t first, uint32_t max) {
        Config c;
        c.first_id = first;
        c.max_connections = max;
        return c;
    }
    static Endpoint at(bool is_a) {
        Endpoint e;
        e.port = is_a ? 0 : 1;
        e.local = address(is_a ? 1 : 2);
        e.remote = address(is_a ? 2 : 1);
        return e;
    }

    ConnectSpec spec(uint32_t qpn = 0x21) {
        ConnectSpec s;
        s.to = at(true);
        s.service_id = kService;
        s.ca_guid = 1;
        s.qpn = qpn;
        s.owner = 11;
        put_ip_header(s.private_data.data(), {4000, address(1), address(2)});
        s.private_data[kIpHeaderLength] = 'x';
        return s;
    }
    void listen() {
        Listener l;
        l.service_id = kService;
        l.owner = 99;
        b.listen(l);
    }

    /// Everything that is on the way arrives (or is lost); then what that causes, until nothing moves.
    void settle() {
        for (bool moved = true; moved;) {
            moved = false;
            for (const bool from_a : {true, false}) {
                Outgoing out;
                while ((from_a ? a : b).next_message(out)) {
                    moved = true;
                    Header h;
                    EXPECT_TRUE(parse_header(out.mad, h));
                    sent.push_back(h.attribute);
                    if (coin(rng) < loss || (dropping && dropping(h.attribute, from_a))) continue;
                    const int copies = coin(rng) < duplicate ? 2 : 1;
                    for (int i = 0; i < copies; ++i) (from_a ? b : a).receive({at(!from_a), kGsiQpn, out.mad}, now);
                }
            }
            if (on_event) moved |= collect();
        }
        if (!on_event) collect();
    }
    bool collect() {
        bool any = false;
        Event e;
        while (a.next_event(e)) {
            any = true;
            events_a.push_back(e);
            if (on_event) on_event(true, e);
        }
        while (b.next_event(e)) {
            any = true;
            events_b.push_back(e);
            if (on_event) on_event(false, e);
        }
        return any;
    }
    void pass(Nanos time) {
        const Nanos end = now + time;
        settle();
        while (true) {
            const Nanos next = std::min(a.next_deadline(), b.next_deadline());
            if (next > end) break;
            now = std::max(now, next);
            a.advance(now);
            b.advance(now);
            settle();
        }
        now = end;
    }
    /// Connects; ids of both ends.
    std::pair<uint32_t, uint32_t> connected() {
        listen();
        const uint32_t id = a.connect(spec(), now);
        settle();
        const uint32_t other = events_b.at(0).connection;
        AcceptSpec accept;
        accept.qpn = 0x31;
        EXPECT_EQ(b.accept(other, accept, now), 0);
        settle();
        EXPECT_EQ(a.ready(id, now), 0);
        settle();
        EXPECT_EQ(a.find(id)->state, State::established);
        EXPECT_EQ(b.find(other)->state, State::established);
        events_a.clear();
        events_b.clear();
        return {id, other};
    }
    int count(Attribute attribute) const { return int(std::count(sent.begin(), sent.end(), attribute)); }

    std::mt19937 rng;
    std::uniform_real_distribution<double> coin{0, 1};
    double loss = 0, duplicate = 0;
    Nanos now = 1;
    Manager a, b;
    std::function<bool(Attribute, bool from_a)> dropping;
    std::function<void(bool at_a, const Event&)> on_event;
    std::vector<Event> events_a, events_b;
    std::vector<Attribute> sent;
};

TEST(CmManager, ConnectsDisconnectsAndForgets) {
    World w;
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    ASSERT_EQ(w.events_b.size(), 1u);
    const Event request = w.events_b[0];
    EXPECT_EQ(request.kind, Kind::connect_request);
    EXPECT_EQ(request.owner, 99u);
    EXPECT_EQ(request.private_data[kIpHeaderLength], 'x');
    EXPECT_EQ(w.b.find(request.connection)->req.qpn, 0x21u);
    w.b.set_owner(request.connection, 22);

    AcceptSpec accept;
    accept.qpn = 0x31;
    accept.private_data[0] = 'y';
    ASSERT_EQ(w.b.accept(request.connection, accept, w.now), 0);
    w.settle();
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::reply);
    EXPECT_EQ(w.events_a[0].owner, 11u);
    EXPECT_EQ(w.events_a[0].private_data[0], 'y');
    EXPECT_EQ(w.a.find(id)->remote_qpn, 0x31u);

    ASSERT_EQ(w.a.ready(id, w.now), 0);
    w.settle();
    ASSERT_EQ(w.events_b.size(), 2u);
    EXPECT_EQ(w.events_b[1].kind, Kind::established);
    EXPECT_EQ(w.events_b[1].owner, 22u);

    ASSERT_EQ(w.a.disconnect(id, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::disconnected);
    ASSERT_EQ(w.b.disconnect(request.connection, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_a.back().kind, Kind::disconnected);
    EXPECT_EQ(w.sent, (std::vector{Attribute::req, Attribute::rep, Attribute::rtu, Attribute::dreq, Attribute::drep}));

    w.pass(60'000 * kMs);
    EXPECT_EQ(w.events_a.back().kind, Kind::timewait_exit);
    EXPECT_EQ(w.events_b.back().kind, Kind::timewait_exit);
    w.a.destroy(id, w.now);
    w.b.destroy(request.connection, w.now);
    EXPECT_EQ(w.a.connections() + w.b.connections(), 0u);
    EXPECT_EQ(w.a.next_deadline(), kNever);
}

TEST(CmManager, NobodyListens) {
    World w;
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::rejected);
    EXPECT_EQ(w.events_a[0].reason, uint16_t(Reason::invalid_service_id));
    EXPECT_EQ(w.a.find(id)->state, State::idle);
    EXPECT_EQ(w.b.connections(), 0u);
}

TEST(CmManager, ListenerOfAnotherAddressOrFamilyDoesNotHear) {
    World w;
    Listener l;
    l.service_id = kService;
    l.address = address(9);
    w.b.listen(l);
    l.address = Gid{};
    l.ipv4 = false;
    w.b.listen(l);
    w.a.connect(w.spec(), w.now);
    w.settle();
    EXPECT_EQ(w.events_a.at(0).reason, uint16_t(Reason::invalid_service_id));
    l.ipv4 = true;
    l.port = 0;  // another device
    w.b.listen(l);
    w.a.connect(w.spec(), w.now);
    w.settle();
    EXPECT_EQ(w.events_a.at(1).reason, uint16_t(Reason::invalid_service_id));
    l.port = 1;
    w.b.listen(l);
    w.a.connect(w.spec(), w.now);
    w.settle();
    EXPECT_EQ(w.events_b.at(0).kind, Kind::connect_request);
}

TEST(CmManager, RejectionCarriesReasonAndDataAndIsRepeated) {
    World w;
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    int lost = 1;
    w.dropping = [&](Attribute attribute, bool) { return attribute == Attribute::rej && lost-- > 0; };
    const uint8_t data[] = {'n', 'o'};
    ASSERT_EQ(w.b.reject(w.events_b.at(0).connection, Reason::consumer, data, w.now), 0);
    w.pass(1000 * kMs);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::rejected);
    EXPECT_EQ(w.events_a[0].reason, uint16_t(Reason::consumer));
    EXPECT_EQ(w.events_a[0].private_data[1], 'o');
    EXPECT_EQ(w.events_b.size(), 1u) << "the repeated REQ must not look like a second one";
    EXPECT_EQ(w.a.find(id)->state, State::idle);
    w.pass(60'000 * kMs);
    EXPECT_EQ(w.b.connections(), 0u);
}

TEST(CmManager, PeerThatNeverAnswers) {
    World w;
    w.loss = 1;
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.pass(response_time(20) * 15);
    EXPECT_TRUE(w.events_a.empty());
    w.pass(response_time(20) * 2);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::unreachable);
    EXPECT_GE(w.count(Attribute::req), 16);
    EXPECT_LE(w.count(Attribute::req), 32);
    w.a.destroy(id, w.now);
    EXPECT_EQ(w.a.connections(), 0u);
}

TEST(CmManager, SlowProgramSendsMra) {
    World w;
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.pass(60'000 * kMs);
    EXPECT_GE(w.count(Attribute::mra), 1);
    EXPECT_LE(w.count(Attribute::req), 3);
    ASSERT_EQ(w.b.accept(w.events_b.at(0).connection, {}, w.now), 0);
    w.settle();
    EXPECT_EQ(w.a.find(id)->state, State::rep_rcvd);
}

TEST(CmManager, RepOfAPeerThatGaveUpIsRefused) {
    World w;
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    w.dropping = [](Attribute, bool from_a) { return from_a; };
    w.a.destroy(id, w.now);  // its REJ is lost
    w.settle();
    w.dropping = nullptr;
    ASSERT_EQ(w.b.accept(w.events_b.at(0).connection, {}, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::rejected);
    EXPECT_EQ(w.events_b.back().reason, uint16_t(Reason::invalid_comm_id));
}

TEST(CmManager, LostRtuIsRepeatedForARepeatedRep) {
    World w;
    int lost = 1;
    w.dropping = [&](Attribute attribute, bool) { return attribute == Attribute::rtu && lost-- > 0; };
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    const uint32_t other = w.events_b.at(0).connection;
    w.b.accept(other, {}, w.now);
    w.settle();
    w.a.ready(id, w.now);
    w.settle();
    EXPECT_EQ(w.b.find(other)->state, State::rep_sent);
    w.pass(1000 * kMs);
    EXPECT_EQ(w.b.find(other)->state, State::established);
    EXPECT_EQ(w.events_b.back().kind, Kind::established);
    EXPECT_EQ(w.events_a.size(), 1u);
}

TEST(CmManager, TrafficBeforeTheRtuEstablishes) {
    World w;
    w.dropping = [](Attribute attribute, bool) { return attribute == Attribute::rtu; };
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    const uint32_t other = w.events_b.at(0).connection;
    EXPECT_EQ(w.b.traffic_seen(other, w.now), EINVAL);
    w.b.accept(other, {}, w.now);
    w.settle();
    w.a.ready(id, w.now);
    w.settle();
    EXPECT_EQ(w.b.traffic_seen(other, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::established);
    EXPECT_EQ(w.b.traffic_seen(other, w.now), EISCONN);
}

TEST(CmManager, BothDisconnectAtOnce) {
    World w;
    const auto [a, b] = w.connected();
    w.sent.clear();
    w.a.disconnect(a, w.now);
    w.b.disconnect(b, w.now);
    w.settle();
    ASSERT_EQ(w.events_a.size(), 1u);
    ASSERT_EQ(w.events_b.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::disconnected);
    EXPECT_EQ(w.events_b[0].kind, Kind::disconnected);
    EXPECT_EQ(w.a.find(a)->state, State::timewait);
    EXPECT_EQ(w.b.find(b)->state, State::timewait);
}

TEST(CmManager, DisconnectFromADeadPeerEnds) {
    World w;
    const auto [a, b] = w.connected();
    w.loss = 1;
    w.a.disconnect(a, w.now);
    w.pass(response_time(20) * 17);
    ASSERT_GE(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::disconnected);
    w.pass(60'000 * kMs);
    EXPECT_EQ(w.events_a.back().kind, Kind::timewait_exit);
    EXPECT_EQ(w.a.find(a)->state, State::idle);
    (void)b;
}

TEST(CmManager, RepeatedDreqIsAnsweredInTimewaitAndAfter) {
    World w;
    const auto [a, b] = w.connected();
    int lost = 1;
    w.dropping = [&](Attribute attribute, bool) { return attribute == Attribute::drep && lost-- > 0; };
    w.a.disconnect(a, w.now);
    w.settle();
    w.b.disconnect(b, w.now);
    w.b.destroy(b, w.now);
    w.pass(1000 * kMs);
    EXPECT_EQ(w.events_a.at(0).kind, Kind::disconnected);
    EXPECT_EQ(w.count(Attribute::drep), 2);
}

TEST(CmManager, OwnerThatDiesIsDisconnected) {
    World w;
    const auto [a, b] = w.connected();
    w.a.destroy(a, w.now);
    w.settle();
    ASSERT_EQ(w.events_b.size(), 1u);
    EXPECT_EQ(w.events_b[0].kind, Kind::disconnected);
    w.b.disconnect(b, w.now);
    w.pass(60'000 * kMs);
    EXPECT_TRUE(w.events_a.empty());
    EXPECT_EQ(w.a.connections(), 0u);
}

TEST(CmManager, StaleConnectionIsCleared) {
    World w;
    const auto [a, b] = w.connected();
    (void)a;
    // The peer lost its memory and connects its QP again, under an ID that we have not seen.
    ConnectSpec again = w.spec();
    w.a.connect(again, w.now);
    w.dropping = [](Attribute attribute, bool from_a) { return attribute == Attribute::dreq && !from_a; };
    w.settle();
    EXPECT_EQ(w.events_a.at(0).kind, Kind::rejected);
    EXPECT_EQ(w.events_a.at(0).reason, uint16_t(Reason::stale_connection));
    EXPECT_EQ(w.events_b.at(0).kind, Kind::disconnected);
    EXPECT_EQ(w.b.find(b)->state, State::timewait);
    w.a.connect(again, w.now);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::connect_request);
}

TEST(CmManager, ReplayedAndForgedMessagesChangeNothing) {
    World w;
    const auto [a, b] = w.connected();
    const uint32_t remote_of_b = w.b.find(b)->remote_id;
    // From another address; with another ID; with another QPN.
    Dreq dreq;
    dreq.local_comm_id = remote_of_b;
    dreq.remote_comm_id = b;
    dreq.remote_qpn = 0x31;
    Endpoint stranger = World::at(false);
    stranger.remote = address(7);
    w.b.receive({stranger, kGsiQpn, encode(1, dreq)}, w.now);
    Dreq wrong = dreq;
    wrong.local_comm_id = remote_of_b + 1;
    w.b.receive({World::at(false), kGsiQpn, encode(1, wrong)}, w.now);
    wrong = dreq;
    wrong.remote_qpn = 0x32;
    w.b.receive({World::at(false), kGsiQpn, encode(1, wrong)}, w.now);
    Rtu rtu;
    rtu.local_comm_id = remote_of_b;
    rtu.remote_comm_id = b;
    w.b.receive({World::at(false), kGsiQpn, encode(1, rtu)}, w.now);
    Event e;
    EXPECT_FALSE(w.b.next_event(e));
    EXPECT_EQ(w.b.find(b)->state, State::established);
    (void)a;
}

TEST(CmManager, FloodOfRequestsIsBounded) {
    World w(1, 64);
    w.listen();
    Req req;
    req.service_id = kService;
    put_ip_header(req.private_data.data(), {1, address(1), address(2)});
    for (uint32_t i = 1; i <= 10000; ++i) {
        req.local_comm_id = i;
        req.qpn = i;
        w.b.receive({World::at(false), kGsiQpn, encode(i, req)}, w.now);
        Outgoing out;
        while (w.b.next_message(out)) {
            Header h;
            ASSERT_TRUE(parse_header(out.mad, h));
            EXPECT_EQ(h.attribute, Attribute::rej);
            EXPECT_EQ(decode<Rej>(out.mad).reason, Reason::no_resources);
        }
    }
    EXPECT_EQ(w.b.connections(), 64u);
    // Those that nobody owns any more make room.
    Event e;
    while (w.b.next_event(e)) w.b.destroy(e.connection, w.now);
    req.local_comm_id = req.qpn = 20000;
    w.b.receive({World::at(false), kGsiQpn, encode(1, req)}, w.now);
    ASSERT_TRUE(w.b.next_event(e));
    EXPECT_EQ(e.kind, Kind::connect_request);
    EXPECT_LE(w.b.connections(), 64u);
}

TEST(CmManager, GarbageIsHarmless) {
    World w;
    const auto [a, b] = w.connected();
    std::uniform_int_distribution<int> byte(0, 255);
    for (int i = 0; i < 50000; ++i) {
        Mad mad = encode(1, Rtu{});
        for (size_t at = kMadHeader; at < mad.size(); ++at) mad[at] = uint8_t(byte(w.rng));
        mad[17] = uint8_t(0x0f + byte(w.rng) % 13);
        w.b.receive({World::at(false), kGsiQpn, mad}, w.now);
        Outgoing out;
        while (w.b.next_message(out)) {
        }
    }
    EXPECT_EQ(w.b.find(b)->state, State::established);
    EXPECT_LE(w.b.connections(), 2u);
    (void)a;
}

TEST(CmManager, WrongStateIsAnError) {
    World w;
    const auto [a, b] = w.connected();
    EXPECT_EQ(w.a.ready(a, w.now), EINVAL);
    EXPECT_EQ(w.b.accept(b, {}, w.now), EINVAL);
    EXPECT_EQ(w.b.reject(b, Reason::consumer, {}, w.now), EINVAL);
    EXPECT_EQ(w.a.disconnect(a, w.now), 0);
    EXPECT_EQ(w.a.disconnect(a, w.now), EINVAL);
    EXPECT_EQ(w.a.disconnect(12345, w.now), ENOENT);
}

TEST(CmManager, ServiceIdResolution) {
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

/// Connects and disconnects many times over a network that loses, doubles and repeats: every end must hear of every step once, in
/// order, and nothing may be left.
class Lossy : public testing::TestWithParam<std::pair<int, double>> {};

TEST_P(Lossy, EveryConnectionComesAndGoes) {
    World w(uint32_t(GetParam().first));
    w.loss = GetParam().second;
    w.duplicate = 0.2;
    w.listen();
    std::map<uint32_t, std::vector<Kind>> seen_a, seen_b;
    w.on_event = [&](bool at_a, const Event& e) {
        (at_a ? seen_a : seen_b)[e.connection].push_back(e.kind);
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

INSTANTIATE_TEST_SUITE_P(Seeds, Lossy,
                         testing::Values(std::pair(1, 0.0), std::pair(2, 0.01), std::pair(3, 0.1), std::pair(4, 0.3),
                                         std::pair(5, 0.5), std::pair(6, 0.5)));

}  // namespace
}  // namespace roci::cm
