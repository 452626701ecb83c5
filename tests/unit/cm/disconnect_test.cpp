// Tests of DREQ, DREP and the time wait state, and of connections that only one end still has.
#include "fixture.hpp"

namespace roci::cm {
namespace {

TEST(CmDisconnect, BothDisconnectAtOnce) {
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

TEST(CmDisconnect, DisconnectFromADeadPeerEnds) {
    World w;
    const auto [a, b] = w.connected();
    w.loss = 1;
    w.a.disconnect(a, w.now);
    w.pass(response_time(20) * 17);
    ASSERT_GE(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::gone) << "DISCONNECTED, with -ETIMEDOUT";
    w.pass(60'000 * kMs);
    EXPECT_EQ(w.events_a.back().kind, Kind::timewait_exit);
    EXPECT_EQ(w.a.find(a)->state, State::idle);
    (void)b;
}

TEST(CmDisconnect, RepeatedDreqIsAnsweredInTimewaitAndAfter) {
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

TEST(CmDisconnect, OwnerThatDiesIsDisconnected) {
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

TEST(CmDisconnect, StaleConnectionIsCleared) {
    World w;
    const auto [a, b] = w.connected();
    (void)a;
    // The peer has lost the state of the connection. It connects the same QP again, with a new communication ID.
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

}  // namespace
}  // namespace roci::cm
