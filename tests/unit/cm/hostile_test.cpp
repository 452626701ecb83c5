// Tests with faulty messages of a peer and faulty calls of an owner. Such messages and calls must not change other connections
// and must use bounded memory.
#include "fixture.hpp"

namespace roci::cm {
namespace {

TEST(CmHostile, ReplayedAndForgedMessagesChangeNothing) {
    World w;
    const auto [a, b] = w.connected();
    const uint32_t remote_of_b = w.b.find(b)->remote_id;
    // Three DREQs are forged: the first comes from another address, the second has a wrong communication ID, and the third has a
    // wrong QPN. The RTU after them repeats an earlier RTU.
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
    EXPECT_EQ(w.b.counters().unknown, 3u);
    EXPECT_EQ(w.b.counters().duplicates, 1u) << "the RTU";
    (void)a;
}

TEST(CmHostile, FloodOfRequestsIsBounded) {
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
    EXPECT_EQ(w.b.counters().refused_full, 10000u - 64u);
    // The owner destroys its connections. After that, the manager must accept a new REQ.
    Event e;
    while (w.b.next_event(e)) w.b.destroy(e.connection, w.now);
    req.local_comm_id = req.qpn = 20000;
    w.b.receive({World::at(false), kGsiQpn, encode(1, req)}, w.now);
    ASSERT_TRUE(w.b.next_event(e));
    EXPECT_EQ(e.kind, Kind::connect_request);
    EXPECT_LE(w.b.connections(), 64u);
}

TEST(CmHostile, GarbageIsHarmless) {
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

TEST(CmHostile, WrongStateIsAnError) {
    World w;
    const auto [a, b] = w.connected();
    EXPECT_EQ(w.a.ready(a, w.now), EINVAL);
    EXPECT_EQ(w.b.accept(b, {}, w.now), EINVAL);
    EXPECT_EQ(w.b.reject(b, Reason::consumer, {}, w.now), EINVAL);
    EXPECT_EQ(w.a.disconnect(a, w.now), 0);
    EXPECT_EQ(w.a.disconnect(a, w.now), EINVAL);
    EXPECT_EQ(w.a.disconnect(12345, w.now), ENOENT);
}

}  // namespace
}  // namespace roci::cm
