// Tests of requests that arrive out of order. The responder must keep these requests and execute them in order. It sends one
// sequence NAK per gap, and cumulative ACKs. The requester is a puppet, whose packets the test writes.
#include <map>

#include "qp/reorder_pool.hpp"
#include "responder_fixture.hpp"

namespace roci::sim {
namespace {

using engine::Counter;

struct Reorder : Responder {
    using Responder::Responder;
    uint32_t message = 10;  ///< length of a message in bytes
    void receives(uint32_t n) {
        for (uint64_t i = 0; i < n; ++i) recv(i, i * 100, 100);
    }
    void send(std::initializer_list<uint32_t> psns) {
        for (const uint32_t i : psns) send_only(first + i, message, i);
    }
    void send_broken(uint32_t i) {
        auto frame =
            puppet.build(wire::make_opcode(wire::Service::rc, Operation::send_only), at(first + i), bytes_of(message, i));
        frame[frame.size() - 5 - wire::kIcrcLength] ^= 1;  // a byte of the payload
        puppet.send_raw(frame);
    }
    uint64_t count(Counter c) { return world.host(0).counter(c); }
    uint64_t held() {
        world.run_for(5000);
        return count(Counter::reorder_held);
    }
    /// Checks that the next `n` receives complete in order with their data.
    void expect_messages(uint32_t from, uint32_t n) {
        const auto done = a.poll_all();
        ASSERT_EQ(done.size(), n);
        for (uint32_t i = 0; i < n; ++i) {
            EXPECT_EQ(done[i].wr_id, from + i);
            EXPECT_EQ(done[i].status, WcStatus::success);
            EXPECT_EQ(first_wrong(a.mr.data() + (from + i) * 100, message, from + i), -1) << i;
        }
    }
};

TEST_F(Reorder, WhatFollowsAGapIsKeptAndExecutedWhenItIsClosed) {
    join();
    receives(8);
    send({0, 2, 3, 4, 5, 6});
    EXPECT_EQ(psns(puppet.listen(20'000)), (std::vector<uint32_t>{first, first + 1})) << "an ACK, and one NAK of the gap";
    expect_messages(0, 1);
    EXPECT_EQ(held(), 5u);
    EXPECT_EQ(a.client.query(qp).attr.rq_psn, first + 1) << "nothing behind the gap is executed";
    send({1});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 6) << "the ACK jumps over what was kept";
    EXPECT_EQ(last[0].packet.msn.value, 7u);
    expect_messages(1, 6);
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(count(Counter::reorder_kept), 5u);
    EXPECT_EQ(count(Counter::reorder_delivered), 5u);
}

// The responder sends one sequence NAK per gap. It sends the NAK for the next gap when the previous gap is closed. So
// the requester can close several gaps.
TEST_F(Reorder, ASecondGapIsReportedWhenTheFirstIsClosed) {
    join();
    receives(12);
    send({0, 2, 3, 4, 6, 7, 8, 9, 10});
    EXPECT_EQ(psns(puppet.listen(50'000)), (std::vector<uint32_t>{first, first + 1}));
    send({1});
    EXPECT_EQ(answer(), kNakSequence);
    EXPECT_EQ(last[0].psn(), first + 5) << "and acknowledges what is before it";
    send({11});
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "one NAK";
    send({5});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 11);
    expect_messages(0, 12);
}

TEST_F(Reorder, OvertakenByThreeIsNotLost) {
    join();
    receives(8);
    send({1, 2, 3, 0, 5, 6, 7, 4});
    const auto got = puppet.listen(50'000);
    for (const auto& g : got) EXPECT_TRUE(is_ack(g.packet.syndrome));
    EXPECT_EQ(got.back().psn(), first + 7);
    expect_messages(0, 8);
    EXPECT_EQ(count(Counter::reorder_late), 0u);
}

// If only a few frames arrive behind a gap, the responder reports the gap after some time.
TEST_F(Reorder, AGapAtTheEndIsReportedSoon) {
    join();
    receives(2);
    send({1});
    EXPECT_TRUE(puppet.listen(30'000).empty());
    EXPECT_EQ(answer(), kNakSequence);
    EXPECT_EQ(last[0].psn(), first);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    expect_messages(0, 2);
}

// A packet was only late, but the responder has reported it as missing. So the packet arrives twice. The responder
// must then wait longer before it reports a gap.
TEST_F(Reorder, PatienceFollowsTheNetwork) {
    join();
    receives(24);
    send({1, 2, 3, 4, 5, 6, 0});
    ASSERT_FALSE(puppet.listen(50'000).empty());
    EXPECT_EQ(count(Counter::reorder_late), 0u);
    send({0});  // the packet that the NAK requested
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(count(Counter::reorder_late), 1u);
    send({8, 9, 10, 11, 12, 13, 7});
    for (const auto& g : puppet.listen(50'000)) EXPECT_TRUE(is_ack(g.packet.syndrome));
    expect_messages(0, 14);
}

TEST_F(Reorder, OfTwoWithOnePsnTheFirstIsKept) {
    join();
    receives(3);
    send({1, 2});
    send_only(first + 1, 10, 99);
    send_only(first + 2, 10, 99);
    puppet.listen(20'000);
    EXPECT_EQ(count(Counter::reorder_duplicates), 2u);
    EXPECT_EQ(held(), 2u);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    expect_messages(0, 3);
}

// While a QP keeps requests, the ICRC of a further request behind the gap is checked before the request is executed.
TEST_F(Reorder, AKeptRequestWithAWrongIcrcIsMissingAgain) {
    join();
    receives(5);
    send({1});
    send_broken(2);
    send({3});
    puppet.listen(20'000);
    EXPECT_EQ(held(), 3u);
    send({0});
    const auto got = puppet.listen(100'000);
    ASSERT_EQ(psns(got), (std::vector<uint32_t>{first + 1, first + 2}));
    EXPECT_TRUE(is_ack(got[0].packet.syndrome));
    EXPECT_EQ(got[1].packet.syndrome, kNakSequence) << "the broken request is reported as missing";
    expect_messages(0, 2);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 1u);
    EXPECT_EQ(world.host(0).engine(0).device_counters(0).icrc_errors, 1u);
    EXPECT_EQ(world.host(0).engine(0).device_counters(0).rx_errors, 1u);
    send_broken(2);
    send({2, 4});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 4);
    expect_messages(2, 3);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 1u);
    EXPECT_EQ(world.host(0).counter(wire::Verdict::bad_icrc), 2u) << "a request that is not behind a gap is checked at once";
}

TEST_F(Reorder, AnIntactCopyReplacesAKeptRequestWithAWrongIcrc) {
    join();
    receives(4);
    send({1});
    send_broken(2);
    send({2, 3});
    puppet.listen(20'000);
    EXPECT_EQ(held(), 3u);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 1u);
    send_broken(2);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 3);
    expect_messages(0, 4);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 1u);
    EXPECT_EQ(count(Counter::reorder_duplicates), 1u) << "of an intact request";
}

// A damaged PSN must not extend the range in which requests count as missing.
TEST_F(Reorder, ARequestBehindAFurtherGapIsCheckedOnArrival) {
    join();
    receives(3);
    send({1});
    send_broken(500);
    send({2});
    puppet.listen(20'000);
    EXPECT_EQ(held(), 2u);
    EXPECT_EQ(world.host(0).counter(wire::Verdict::bad_icrc), 1u);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 0u);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    expect_messages(0, 3);
    EXPECT_TRUE(puppet.listen(5'000'000).empty()) << "nothing is missing";
}

TEST_F(Reorder, TheLastKeptRequestWithAWrongIcrcIsDropped) {
    join();
    receives(3);
    send({1});
    send_broken(2);
    puppet.listen(20'000);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 1);
    expect_messages(0, 2);
    EXPECT_EQ(held(), 0u);
    send({2});
    EXPECT_TRUE(is_ack(answer()));
    expect_messages(2, 1);
}

// A request is behind a gap when its batch is parsed. A packet of the same batch closes the gap, so the request must be checked
// before it is executed.
TEST_F(Reorder, ARequestIsCheckedIfItsBatchClosesTheGap) {
    join();
    receives(3);
    send({1});
    puppet.listen(20'000);
    world.host(0).pause(world.now() + 5'000);  // so that the engine receives both packets at once
    send({0});
    send_broken(2);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first + 1);
    expect_messages(0, 2);
    EXPECT_EQ(world.host(0).counter(wire::Verdict::bad_icrc), 1u);
    EXPECT_EQ(count(Counter::reorder_bad_icrc), 0u);
    send({2});
    EXPECT_TRUE(is_ack(answer()));
    expect_messages(2, 1);
}

TEST_F(Reorder, PsnsWrap) {
    path.peer_psn = first = 0xfffffd;
    join();
    receives(8);
    send({1, 2, 3, 4, 6, 7});
    EXPECT_EQ(answer(), kNakSequence);
    send({0});
    world.run_for(50'000);
    send({5});
    const auto got = puppet.listen(50'000);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.back().psn(), (first + 7) & kMask24);
    expect_messages(0, 8);
}

TEST_F(Reorder, AReadThatWasKeptTakesItsPsns) {
    join();
    receives(4);
    send_only(first + 4, 10, 1);  // the PSN after the READ's response
    puppet.send(Operation::read_request, write_at(first + 1, a.mr.address() + 8192, a.mr.rkey, 3 * kMtu), {});
    world.run_for(10'000);
    send_only(first, 10, 0);
    const auto got = puppet.listen(50'000);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(psns(got), (std::vector<uint32_t>{first + 1, first + 2, first + 3, first + 4}));
    EXPECT_EQ(got.back().op(), Operation::ack);
    expect_messages(0, 2);
    EXPECT_EQ(held(), 0u);
}

// ---- faults and limits -------------------------------------------------------------------------------------------------

// After an RNR NAK the requester starts again from the PSN of the NAK (IBA 9.7.5.2.8). So the responder must keep no
// packets behind this PSN.
TEST_F(Reorder, NothingIsKeptBehindAReceiverThatIsNotReady) {
    join();
    send({1, 2, 3});
    world.run_for(10'000);
    EXPECT_EQ(held(), 3u);
    send({0});
    EXPECT_EQ(answer(), rnr_nak(1));
    EXPECT_EQ(held(), 0u);
    send({1, 2, 3});
    EXPECT_TRUE(puppet.listen(50'000).empty());
    EXPECT_EQ(held(), 0u);
    receives(4);
    send({0, 1, 2, 3});
    ASSERT_FALSE(puppet.listen(50'000).empty());
    expect_messages(0, 4);
}

TEST_F(Reorder, AKeptFrameMakesTheReceiverNotReady) {
    join();
    receives(2);
    send({1, 2, 3});
    world.run_for(10'000);
    send({0});
    EXPECT_EQ(answer(), rnr_nak(1));
    EXPECT_EQ(last[0].psn(), first + 2);
    EXPECT_EQ(held(), 0u);
    expect_messages(0, 2);
}

TEST_F(Reorder, AKeptFrameIsCheckedWhenItsTurnComes) {
    join();
    receives(4);
    send({2});
    puppet.send(Operation::write_only, write_at(first + 1, a.mr.address(), a.mr.rkey + 1, 10), bytes_of(10, 1));
    world.run_for(10'000);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_RTS)) << "not before";
    send({0});
    EXPECT_EQ(answer(), kNakAccess);
    EXPECT_EQ(last[0].psn(), first + 1);
    EXPECT_EQ(state(), uint32_t(IBV_QPS_ERR));
    EXPECT_EQ(held(), 0u);
}

TEST_F(Reorder, WhatIsKeptGoesWithTheQp) {
    struct Case {
        const char* what;
        std::function<void(Client&, Qp&)> end;
    };
    const Case cases[] = {
        {"reset", [](Client& c, Qp& q) { c.to_state(q, IBV_QPS_RESET); }},
        {"error", [](Client& c, Qp& q) { c.to_state(q, IBV_QPS_ERR); }},
        {"destroy", [](Client& c, Qp& q) { c.destroy_qp(q); }},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.what);
        Qp& q = a.qp();
        connect(a.client, q, puppet, path);
        send({2, 3});
        world.run_for(10'000);
        EXPECT_EQ(held(), 2u);
        c.end(a.client, q);
        EXPECT_EQ(held(), 0u);
    }
    EXPECT_EQ(count(Counter::reorder_freed), 6u);
}

TEST_F(Reorder, WhatIsKeptInVainIsFreed) {
    join();
    receives(4);
    send({1, 2, 3});
    world.run_for(100'000'000);
    EXPECT_EQ(held(), 3u);
    world.run_for(1'000'000'000);
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(count(Counter::reorder_freed), 3u);
    puppet.listen(1000);
    send({0});
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(last[0].psn(), first) << "the rest has to come again";
    send({1, 2, 3});
    ASSERT_FALSE(puppet.listen(50'000).empty());
    expect_messages(0, 4);
}

// The responder must drop a kept packet if a READ arrives whose responses use the PSN of this packet.
TEST_F(Reorder, FramesWithinTheResponsesOfAReadAreDropped) {
    join();
    receives(8);
    send_only(first + 1, 10, 1);
    send_only(first + 2, 10, 2);
    send_only(first + 4, 10, 0);
    world.run_for(10'000);
    EXPECT_EQ(held(), 3u);
    puppet.send(Operation::read_request, write_at(first, a.mr.address() + 8192, a.mr.rkey, 4 * kMtu), {});
    puppet.listen(50'000);
    expect_messages(0, 1);
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(count(Counter::reorder_freed), 2u);
}

struct LongRounds : Reorder {
    static WorldOptions slow() {
        WorldOptions o{.hosts = 1};
        o.round_cost = 1000;
        return o;
    }
    LongRounds() : Reorder(slow()) {}
};

/// The round that sends the report of a loss sends few other frames, so that a peer on the same engine gets the report soon.
TEST_F(LongRounds, TheRoundThatReportsALossIsShort) {
    join();
    receives(8);
    send({0, 2, 3, 4, 5, 6});
    ASSERT_TRUE(a.client.post_send(qp, a.send(1, 0, 200 * 1024)));
    world.run_for(20'000);
    std::map<Nanos, uint32_t> requests;  // sent requests by the time of the round
    Nanos reported = 0;
    for (const Sent& s : world.net().capture()) {
        if (s.from != 0 || !s.parsed) continue;
        requests[s.when] += s.packet.info->has(wire::kRequest);
        if (!s.packet.info->has(wire::kRequest) && s.packet.syndrome == kNakSequence) reported = s.when;
    }
    ASSERT_NE(reported, 0u);
    const auto report = requests.find(reported);
    EXPECT_LE(report->second, 8u);
    ASSERT_NE(std::next(report), requests.end());
    EXPECT_EQ(std::next(report)->second, 32u) << "the next round is long again";
    EXPECT_EQ(std::prev(report)->second, 32u);
}

struct SmallReorder : Reorder {
    static WorldOptions small() {
        WorldOptions o{.hosts = 1};
        o.engine.reorder_frames = 8;
        o.engine.reorder_bytes = 16 * roci::qp::ReorderPool::kFrameBytes;
        return o;
    }
    SmallReorder() : Reorder(small()) {}
};

TEST_F(SmallReorder, FramesBeyondTheWindowAreNotKept) {
    join();
    receives(9);
    send({8, 7});
    EXPECT_EQ(answer(), kNakSequence) << "at once";
    EXPECT_EQ(count(Counter::reorder_beyond), 1u);
    EXPECT_EQ(held(), 1u);
    send({0, 1, 2, 3, 4, 5, 6});
    const auto got = puppet.listen(50'000);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.back().psn(), first + 7);
    expect_messages(0, 8);
}

// Kept packets must also be freed if the responder had reported the gap before it kept the first of them.
TEST_F(SmallReorder, WhatIsKeptAfterTheNakIsFreedToo) {
    join();
    receives(9);
    send({8});
    EXPECT_EQ(answer(), kNakSequence);
    send({3});
    world.run_for(10'000);
    EXPECT_EQ(held(), 1u);
    world.run_for(1'000'000'000);
    EXPECT_EQ(held(), 0u);
}

// A QP that fills its share of the pool must affect only itself. Other QPs must keep their shares. The first QP must
// work as if it had no pool.
TEST_F(SmallReorder, APeerThatFillsItsShareHarmsItselfOnly) {
    join();
    receives(8);
    Qp& other = a.qp();
    connect(a.client, other, puppet, path);
    ASSERT_TRUE(a.client.post_recv(other, 100, {a.sge(900, 100)}));
    ASSERT_TRUE(a.client.post_recv(other, 101, {a.sge(1000, 100)}));
    puppet.talk_to(a.client.self(qp));
    send({1, 2, 3, 4, 5, 6, 7});
    world.run_for(10'000);
    EXPECT_EQ(held(), 3u);
    EXPECT_EQ(count(Counter::reorder_share), 4u);
    puppet.listen(50'000);
    puppet.talk_to(a.client.self(other));
    send_only(first + 1, 10, 1);
    EXPECT_EQ(held(), 4u);
    send_only(first, 10, 0);
    EXPECT_TRUE(is_ack(answer()));
    EXPECT_EQ(a.poll_all().size(), 2u);
    puppet.talk_to(a.client.self(qp));
    send({0, 1, 2, 3, 4, 5, 6, 7});
    puppet.listen(50'000);
    expect_messages(0, 8);
}

}  // namespace
}  // namespace roci::sim
