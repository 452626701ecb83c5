// Tests of connecting, from REQ to RTU: attempts that succeed and attempts that fail.
#include "fixture.hpp"

namespace roci::cm {
namespace {

TEST(CmConnect, ConnectsDisconnectsAndForgets) {
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

TEST(CmConnect, NobodyListens) {
    World w;
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::rejected);
    EXPECT_EQ(w.events_a[0].reason, uint16_t(Reason::invalid_service_id));
    EXPECT_EQ(w.a.find(id)->state, State::idle);
    EXPECT_EQ(w.b.connections(), 0u);
}

TEST(CmConnect, ListenerOfAnotherAddressOrFamilyDoesNotHear) {
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
    l.port = 0;  // the listener is on device 0, but the request arrives on device 1
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

TEST(CmConnect, RejectionCarriesReasonAndDataAndIsRepeated) {
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

TEST(CmConnect, PeerThatNeverAnswers) {
    World w;
    w.loss = 1;
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.pass(response_time(20) * 15);
    EXPECT_TRUE(w.events_a.empty());
    w.pass(response_time(20) * 2);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::unreachable);
    EXPECT_EQ(w.count(Attribute::req), 1 + 15);  // the REQ, and exactly max_retries repetitions (IBA 12.7.27)
    EXPECT_EQ(w.a.counters().repeated, 15u);
    EXPECT_EQ(w.a.counters().timeouts, 1u);
    w.a.destroy(id, w.now);
    EXPECT_EQ(w.a.connections(), 0u);
}

TEST(CmConnect, SlowProgramSendsMra) {
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

/// The peer sends an MRA after each REQ but never a REP. Nevertheless the connection attempt must end.
TEST(CmConnect, ProgramThatNeverAnswersIsGivenUpOn) {
    World w;
    w.listen();
    w.a.connect(w.spec(), w.now);
    w.pass(3'600'000 * kMs);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::unreachable);
    EXPECT_EQ(w.count(Attribute::req), 1 + 15);
    EXPECT_EQ(w.count(Attribute::mra), 15);
    ASSERT_EQ(w.events_b.size(), 2u);
    EXPECT_EQ(w.events_b[1].kind, Kind::rejected);
    EXPECT_EQ(w.events_b[1].reason, uint16_t(Reason::timeout));
}

/// fio requests 10 retries and 10 RNR retries. The fields of the REQ have three bits, so the manager must send 7.
/// Truncation to three bits would give 2.
TEST(CmConnect, MoreRetriesThanFitAreTheMost) {
    World w;
    w.listen();
    ConnectSpec s = w.spec();
    s.retry_count = s.rnr_retry_count = 10;
    const uint32_t id = w.a.connect(s, w.now);
    w.settle();
    EXPECT_EQ(w.b.find(w.events_b.at(0).connection)->req.retry_count, 7);
    EXPECT_EQ(w.b.find(w.events_b.at(0).connection)->req.rnr_retry_count, 7);
    AcceptSpec accept;
    accept.qpn = 0x31;
    accept.rnr_retry_count = 10;
    EXPECT_EQ(w.b.accept(w.events_b.at(0).connection, accept, w.now), 0);
    w.settle();
    EXPECT_EQ(w.a.find(id)->rep.rnr_retry_count, 7);
}

TEST(CmConnect, CountersSayWhatHappened) {
    World w;
    const auto [a, b] = w.connected();
    w.a.disconnect(a, w.now);
    w.settle();
    w.b.disconnect(b, w.now);
    w.settle();
    const auto at = [](Attribute x) { return size_t(x) - size_t(Attribute::req); };
    for (const Attribute x : {Attribute::req, Attribute::rtu, Attribute::dreq}) {
        EXPECT_EQ(w.a.counters().sent[at(x)], 1u) << attribute_name(x);
        EXPECT_EQ(w.b.counters().received[at(x)], 1u) << attribute_name(x);
    }
    for (const Attribute x : {Attribute::rep, Attribute::drep}) {
        EXPECT_EQ(w.b.counters().sent[at(x)], 1u) << attribute_name(x);
        EXPECT_EQ(w.a.counters().received[at(x)], 1u) << attribute_name(x);
    }
    EXPECT_EQ(w.a.counters().repeated + w.b.counters().repeated + w.b.counters().duplicates, 0u);
    ConnectSpec nowhere = w.spec(0x99);
    nowhere.service_id = kService + 1;
    w.a.connect(nowhere, w.now);
    w.settle();
    EXPECT_EQ(w.b.counters().refused_no_listener, 1u);
    EXPECT_EQ(w.b.counters().sent[at(Attribute::rej)], 1u);
}

TEST(CmConnect, RepOfAPeerThatGaveUpIsRefused) {
    World w;
    w.listen();
    const uint32_t id = w.a.connect(w.spec(), w.now);
    w.settle();
    w.dropping = [](Attribute, bool from_a) { return from_a; };
    w.a.destroy(id, w.now);  // sends a REJ, which the network loses
    w.settle();
    w.dropping = nullptr;
    ASSERT_EQ(w.b.accept(w.events_b.at(0).connection, {}, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::rejected);
    EXPECT_EQ(w.events_b.back().reason, uint16_t(Reason::invalid_comm_id));
}

// A REP arrives after the connection attempt has timed out. The peer has not detected the timeout, so the manager
// must reply with a REJ. The program must get no further event.
TEST(CmConnect, RepAfterTheTimeoutIsRefused) {
    World w;
    w.listen();
    w.dropping = [](Attribute, bool from_a) { return !from_a; };
    w.a.connect(w.spec(), w.now);
    w.settle();
    w.dropping = [](Attribute, bool) { return true; };
    w.pass(response_time(20) * 17);
    ASSERT_EQ(w.events_a.size(), 1u);
    EXPECT_EQ(w.events_a[0].kind, Kind::unreachable);
    w.dropping = nullptr;
    ASSERT_EQ(w.b.accept(w.events_b.at(0).connection, {}, w.now), 0);
    w.settle();
    EXPECT_EQ(w.events_b.back().kind, Kind::rejected);
    EXPECT_EQ(w.events_b.back().reason, uint16_t(Reason::timeout));
    EXPECT_EQ(w.events_a.size(), 1u);
}

TEST(CmConnect, LostRtuIsRepeatedForARepeatedRep) {
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

TEST(CmConnect, TrafficBeforeTheRtuEstablishes) {
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

}  // namespace
}  // namespace roci::cm
