// Tests of two connected engines: losses, completions, events, and errors, which must affect only their own QP.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using Pair = PairTest;

/// Applies a verdict to the n-th frame that matches, counted from 1. All other frames pass.
struct NthFrame {
    std::function<bool(const Sent&)> matches;
    uint32_t n;
    Verdict verdict{Verdict::drop};
    uint32_t seen = 0;
    Verdict operator()(const Sent& s) { return s.parsed && matches(s) && ++seen == n ? verdict : Verdict{}; }
};
auto operation(Operation op) {
    return [op](const Sent& s) { return wire::operation_of(s.packet.opcode) == op; };
}

TEST_F(Pair, EveryOperationAtEverySizeAroundAPacket) {
    join();
    uint64_t tag = 1;
    for (uint32_t size : {0u, 1u, 3u, 4u, 1023u, 1024u, 1025u, 2048u, 5000u, 65536u, 500'000u}) {
        for (WrOpcode op :
             {WrOpcode::send, WrOpcode::send_imm, WrOpcode::rdma_write, WrOpcode::rdma_write_imm, WrOpcode::rdma_read}) {
            SCOPED_TRACE(testing::Message() << "opcode " << int(op) << " size " << size);
            ++tag;
            const bool read = op == WrOpcode::rdma_read, recv = op != WrOpcode::rdma_write && !read;
            fill(a.mr.data(), size, read ? 0 : tag);
            fill(b.mr.data(), size, read ? tag : 0);
            if (recv) b.client.post_recv(qb, tag, {b.sge(0, size / 2), b.sge(size / 2, size - size / 2)});
            SendWr w = a.rdma(op, tag, 0, size, b.mr.address(), b.mr.rkey);
            w.imm_or_inv = uint32_t(tag);
            a.client.post_send(qa, w);
            const auto done = a.wait(1);
            ASSERT_EQ(done.size(), 1u);
            EXPECT_EQ(done[0].status, WcStatus::success);
            EXPECT_EQ(first_wrong(a.mr.data(), size, tag), -1);
            EXPECT_EQ(first_wrong(b.mr.data(), size, tag), -1);
            const auto got = b.poll_all();
            ASSERT_EQ(got.size(), recv ? 1u : 0u);
            if (recv) {
                EXPECT_EQ(got[0].byte_len, size);
            }
        }
    }
}

TEST_F(Pair, Ipv6) {
    PathOptions o;
    o.gid_index = 1;
    join(o);
    b.client.post_recv(qb, 1, {b.sge(0, 5000)});
    fill(a.mr.data(), 5000, 9);
    a.client.post_send(qa, a.send(1, 0, 5000));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(b.mr.data(), 5000, 9), -1);
    for (const Sent& s : world.net().capture()) EXPECT_TRUE(s.packet.ipv6);
}

/// The result of a message of six frames, of which the network has lost one.
struct OneLoss {
    uint32_t data_frames = 0;  ///< number of data frames that the sender sent
    Nanos took = 0;
};
OneLoss send_with_one_loss(PairTest& t, uint32_t lost) {
    constexpr uint32_t kBytes = 6 * 1024;
    OneLoss out;
    t.world.net().set_script([&out, nth = NthFrame{[](const Sent& s) { return s.from == 0; }, lost}](const Sent& s) mutable {
        out.data_frames += s.from == 0;
        return nth(s);
    });
    t.b.client.post_recv(t.qb, lost, {t.b.sge(0, 8192)});
    fill(t.a.mr.data(), kBytes, lost);
    t.a.client.post_send(t.qa, t.a.send(lost, 0, kBytes));
    const Nanos start = t.world.now();
    EXPECT_EQ(t.a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(t.b.mr.data(), kBytes, lost), -1);
    out.took = t.world.now() - start;
    t.b.poll_all();
    t.world.net().set_script({});
    return out;
}
constexpr Nanos kTimeout = Nanos{4096} << 8;

// The message must arrive without a timeout. The sender may repeat only the lost frame and may send one probe.
TEST_F(Pair, AnySingleLossCostsOneFrameAndAtMostAProbe) {
    join();
    for (uint32_t lost = 1; lost <= 6; ++lost) {
        SCOPED_TRACE(lost);
        const OneLoss loss = send_with_one_loss(*this, lost);
        EXPECT_LT(loss.took, kTimeout);
        EXPECT_LE(loss.data_frames, 8u) << "the lost one again, and a probe at most";
    }
}

struct PairThatGoesBack : PairTest {
    PairThatGoesBack() : PairTest({.engine = {.selective_repeat = false}}) {}
};

// The message must arrive. After a NAK the sender repeats the lost frame and the frames after it, but no earlier
// frame.
TEST_F(PairThatGoesBack, AnySingleLossRepeatsFromTheLostFrameOn) {
    join();
    for (uint32_t lost = 1; lost <= 6; ++lost) {
        SCOPED_TRACE(lost);
        const OneLoss loss = send_with_one_loss(*this, lost);
        if (lost < 6) {
            EXPECT_EQ(loss.data_frames, 6 + (6 - lost + 1)) << "sent again from the lost one on, nothing older";
            EXPECT_LT(loss.took, 500'000u) << "a NAK tells of the gap, no timeout is needed";
        } else {
            EXPECT_GE(loss.took, kTimeout) << "tail loss: by timeout";
            EXPECT_EQ(loss.data_frames, 6u + 2 + 1) << "two to ask, whose ACK tells that only the last is missing";
        }
    }
}

TEST_F(Pair, LostAckRecoversWithoutDeliveringTwice) {
    join();
    world.net().set_script(NthFrame{operation(Operation::ack), 1});
    for (uint64_t i = 0; i < 3; ++i) b.client.post_recv(qb, i, {b.sge(i * 100, 100)});
    a.client.post_send(qa, a.send(1, 0, 100));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(b.poll_all().size(), 1u);
    EXPECT_EQ(a.client.query(qa).attr.qp_state, uint32_t(IBV_QPS_RTS));
}

TEST_F(Pair, LostNakRecoversByTimeout) {
    join();
    uint32_t dropped_data = 0, dropped_nak = 0;
    world.net().set_script([&](const Sent& s) {
        if (s.from == 0 && s.packet.psn.value() == 0x101 && dropped_data++ == 0) return Verdict{Verdict::drop};
        if (s.from == 1 && s.packet.syndrome == kNakSequence && dropped_nak++ == 0) return Verdict{Verdict::drop};
        return Verdict{};
    });
    b.client.post_recv(qb, 1, {b.sge(0, 8192)});
    fill(a.mr.data(), 4096, 5);
    a.client.post_send(qa, a.send(1, 0, 4096));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(dropped_nak, 1u);
    EXPECT_EQ(first_wrong(b.mr.data(), 4096, 5), -1);
    EXPECT_EQ(world.host(0).engine(0).device_counters(0).timeouts, 1u);
}

TEST_F(Pair, CorruptedFrameIsALostFrame) {
    join();
    world.net().set_script(NthFrame{operation(Operation::send_middle), 1, {Verdict::corrupt}});
    b.client.post_recv(qb, 1, {b.sge(0, 8192)});
    fill(a.mr.data(), 4096, 5);
    a.client.post_send(qa, a.send(1, 0, 4096));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    EXPECT_EQ(first_wrong(b.mr.data(), 4096, 5), -1);
}

TEST_F(Pair, EveryReadResponseMayBeLostOnce) {
    join();
    fill(b.mr.data(), 8 * 1024, 3);
    for (uint32_t lost = 1; lost <= 8; ++lost) {
        SCOPED_TRACE(lost);
        world.net().set_script(
            NthFrame{[](const Sent& s) { return s.packet.info->has(wire::kRead) && s.packet.info->has(wire::kResponse); }, lost});
        std::memset(a.mr.data(), 0, 8 * 1024);
        a.client.post_send(qa, a.rdma(WrOpcode::rdma_read, lost, 0, 8 * 1024, b.mr.address(), b.mr.rkey));
        EXPECT_EQ(a.wait_status(), WcStatus::success);
        EXPECT_EQ(first_wrong(a.mr.data(), 8 * 1024, 3), -1);
    }
}

// A fetch-and-add must add only once, even if its response is lost several times.
TEST_F(Pair, LostAtomicAnswersDoNotRepeatTheAtomic) {
    join();
    uint32_t lost = 0;
    world.net().set_script([&](const Sent& s) {
        return s.parsed && wire::operation_of(s.packet.opcode) == Operation::atomic_ack && lost++ < 3 ? Verdict{Verdict::drop}
                                                                                                      : Verdict{};
    });
    uint64_t word = 1000;
    std::memcpy(b.mr.data(), &word, 8);
    SendWr w = a.rdma(WrOpcode::atomic_fetch_add, 1, 0, 8, b.mr.address(), b.mr.rkey);
    w.compare_add = 5;
    a.client.post_send(qa, w);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    std::memcpy(&word, b.mr.data(), 8);
    EXPECT_EQ(word, 1005u);
    std::memcpy(&word, a.mr.data(), 8);
    EXPECT_EQ(word, 1000u);
    EXPECT_EQ(lost, 4u);
}

TEST_F(Pair, DeadPeerIsRetryExceededAndEverythingIsFlushed) {
    PathOptions o;
    o.retry_cnt = 2;
    join(o);
    world.net().blackout(1, kNever);
    for (uint64_t i = 0; i < 5; ++i) {
        SendWr w = a.send(i, 0, 10);
        if (i % 2 == 1) w.flags = 0;
        a.client.post_send(qa, w);
    }
    for (uint64_t i = 10; i < 14; ++i) a.client.post_recv(qa, i, {a.sge(0, 10)});
    const auto done = a.wait(9);
    ASSERT_EQ(done.size(), 9u) << "in error even unsignalled requests complete (IBA 10.3.1.7)";
    std::map<uint64_t, WcStatus> by_id;
    for (const auto& c : done) by_id[c.wr_id] = c.status;
    EXPECT_EQ(by_id[0], WcStatus::retry_exc_err);
    for (uint64_t i : {1, 2, 3, 4, 10, 11, 12, 13}) EXPECT_EQ(by_id[i], WcStatus::wr_flush_err) << i;
    // Requests that a program posts to a QP in the error state are flushed too.
    a.client.post_send(qa, a.send(20, 0, 10));
    a.client.post_recv(qa, 21, {a.sge(0, 10)});
    const auto late = a.wait(2);
    ASSERT_EQ(late.size(), 2u);
    for (const auto& c : late) EXPECT_EQ(c.status, WcStatus::wr_flush_err);
}

TEST_F(Pair, ResetAndReconnectWorksAgain) {
    for (uint32_t round = 0; round < 3; ++round) {
        PathOptions o;
        o.psn = 0x1000 * (round + 1);
        o.peer_psn = 0x777 + round;
        join(o);
        b.client.post_recv(qb, 1, {b.sge(0, 5000)});
        fill(a.mr.data(), 5000, round);
        a.client.post_send(qa, a.send(round, 0, 5000));
        a.client.post_send(qa, a.send(100, 0, 5000));  // side b has no receive for this SEND, so the SEND never completes
        EXPECT_EQ(a.wait_status(), WcStatus::success);
        EXPECT_EQ(first_wrong(b.mr.data(), 5000, round), -1);
        world.run_for(100'000);
        a.client.to_state(qa, IBV_QPS_RESET);
        b.client.to_state(qb, IBV_QPS_RESET);
        world.run_for(100'000);
        b.poll_all();
        EXPECT_TRUE(a.poll_all().empty()) << "RESET completes nothing";
    }
}

// Eight QPs whose peer is never ready must not slow another QP by more than a fixed factor.
TEST_F(Pair, RnrStormOnOneQpDoesNotSlowAnother) {
    uint32_t before = 0, most = 0;  // frames to other QPs between a post and the first frame of the posted message
    bool posted = false;
    world.net().set_script([&](const Sent& s) {
        if (s.from == 0 && posted) {
            posted = s.packet.dest_qp.value != qb.qpn;
            most = std::max(most, before += posted);
        }
        return Verdict{};
    });
    auto time_for = [&](Qp& q, Qp& peer) {
        const Nanos start = world.now();
        for (uint64_t i = 0; i < 40; ++i) {
            b.client.post_recv(peer, i, {b.sge(0, 4096)});
            a.client.post_send(q, a.send(i, 0, 4096));
            before = 0;
            posted = true;
            size_t mine = 0;
            world.run_until([&] {
                for (auto e = a.client.poll(a.cq); e; e = a.client.poll(a.cq))
                    mine += e->qpn == q.qpn && e->status == WcStatus::success;
                return mine > 0;
            });
        }
        b.poll_all();
        return world.now() - start;
    };
    join();
    const Nanos quiet = time_for(qa, qb);
    EXPECT_EQ(most, 0u);
    constexpr uint32_t kStuck = 8;
    for (uint32_t i = 0; i < kStuck; ++i) {
        Qp& stuck = a.qp();
        Qp& unready = b.qp();
        connect(a.client, stuck, b.client, unready);
        for (uint64_t k = 0; k < 20; ++k) a.client.post_send(stuck, a.send(1000 + k, 0, 4096));
    }
    world.run_for(1'000'000);
    const Nanos stormy = time_for(qa, qb);
    EXPECT_GT(most, 0u) << "there is no storm";
    EXPECT_LE(most, kStuck * engine::Config{}.qp_quantum) << "the others have more than one turn each before this QP has one";
    // A message also waits for the storm's frames that are on the wire already. Each QP of the storm repeats its 80
    // KB after each RNR time of 10 us. The wire needs 57 us for the 640 KB of all eight QPs.
    EXPECT_LT(stormy, 10 * quiet + 1'000'000) << "quiet " << quiet << " ns";
}

TEST_F(Pair, CountersEqualTheCapture) {
    join();
    world.net().set_script(NthFrame{operation(Operation::send_middle), 2});
    for (uint64_t i = 0; i < 4; ++i) b.client.post_recv(qb, i, {b.sge(0, 8192)});
    for (uint64_t i = 0; i < 4; ++i) a.client.post_send(qa, a.send(i, 0, 4096));
    EXPECT_EQ(a.wait(4).size(), 4u);
    world.run_for(100'000);
    uint64_t sent[2] = {0, 0}, naks = 0, lost = 0;
    for (const Sent& s : world.net().capture()) {
        ++sent[s.from];
        naks += s.packet.syndrome == kNakSequence && s.packet.info->has(wire::kAck);
        lost += s.fate == Fate::dropped;
    }
    EXPECT_EQ(naks, 1u);
    EXPECT_EQ(lost, 1u);
    EXPECT_EQ(world.host(0).counter(engine::Counter::tx_frames), sent[0]);
    EXPECT_EQ(world.host(1).counter(engine::Counter::rx_frames), sent[0] - lost);
    EXPECT_EQ(world.host(0).counter(engine::Counter::rx_frames), sent[1]);
}

// ---- shared receive queue, events -----------------------------------------------------------------------------------

TEST_F(Pair, SrqServesTwoQpsAndTellsWhenItRunsLow) {
    Srq& srq = b.client.create_srq(b.pd, 16);
    QpOptions o;
    o.srq = &srq;
    Qp& b1 = b.qp(o);
    Qp& b2 = b.qp(o);
    Qp& a1 = a.qp();
    Qp& a2 = a.qp();
    connect(a.client, a1, b.client, b1);
    connect(a.client, a2, b.client, b2);
    for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(b.client.post_srq_recv(srq, i, {b.sge(i * 100, 100)}));
    ASSERT_EQ(b.client.try_call(abi::Op::modify_srq, abi::ModifySrqRequest{srq.handle, IBV_SRQ_LIMIT, 0, 4}), 0)
        << b.client.reason();
    auto& asyncs = b.client.host().platform().asyncs[b.client.session()];
    for (uint64_t i = 0; i < 2; ++i) a.client.post_send(i % 2 ? a1 : a2, a.send(i, 0, 10));
    EXPECT_EQ(a.wait(2).size(), 2u);
    std::erase_if(asyncs, [](const auto& r) { return r.event_type != uint32_t(IBV_EVENT_SRQ_LIMIT_REACHED); });
    EXPECT_TRUE(asyncs.empty()) << "4 left";
    a.client.post_send(a1, a.send(2, 0, 10));
    EXPECT_EQ(a.wait(1).size(), 1u);
    world.run_for(10'000);
    std::erase_if(asyncs, [](const auto& r) { return r.event_type != uint32_t(IBV_EVENT_SRQ_LIMIT_REACHED); });
    ASSERT_EQ(asyncs.size(), 1u) << "3 left: below the limit";
    EXPECT_EQ(asyncs[0].handle, srq.handle);
    const auto got = b.poll_all();
    ASSERT_EQ(got.size(), 3u);
    for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(got[i].wr_id, i);
        EXPECT_EQ(got[i].queue, abi::kCqeSrq);
    }
}

/// A CQ loses its last QP while moderation delays an event of this CQ. The fence for another object must send the
/// event. After the CQ has got a new QP, the CQ must cause events again.
TEST_F(Pair, AModeratedCqGetsEventsAgainWithItsNextQp) {
    Cq& cq = b.client.create_cq(64, true);
    EXPECT_EQ(b.client.try_call(abi::Op::modify_cq, abi::ModifyCqRequest{cq.handle, 1000, 60'000, 0}), 0);
    auto& events = b.client.host().platform().completions[{b.client.session(), cq.channel}];
    const auto arrive = [&] {
        Qp &qc = a.qp(), &qd = b.client.create_qp(b.pd, cq, cq);
        connect(a.client, qc, b.client, qd);
        cq.ring.arm(false);
        b.client.post_recv(qd, 1, {b.sge(0, 100)});
        a.client.post_send(qc, a.send(1, 0, 100));
        EXPECT_EQ(a.wait_status(), WcStatus::success);
        world.run_for(10'000);
        b.client.destroy_qp(qd);
        while (b.client.poll(cq)) {
        }
    };
    arrive();
    Mr& other = b.client.reg_mr(b.pd, 4096);
    b.client.dereg_mr(other);
    world.run_for(10'000);
    EXPECT_EQ(events.size(), 1u) << "the fence reports it early";
    EXPECT_EQ(b.client.try_call(abi::Op::modify_cq, abi::ModifyCqRequest{cq.handle, 0, 0, 0}), 0);
    arrive();
    EXPECT_EQ(events.size(), 2u) << "the CQ is not forgotten";
}

TEST_F(Pair, CompletionEventsFollowArming) {
    Cq& cq = b.client.create_cq(16, true);
    Qp& q = b.client.create_qp(b.pd, cq, cq);
    Qp& p = a.qp();
    connect(a.client, p, b.client, q);
    for (uint64_t i = 0; i < 8; ++i) b.client.post_recv(q, i, {b.sge(0, 100)});
    auto& events = b.client.host().platform().completions[{b.client.session(), cq.channel}];
    uint64_t id = 0;
    auto arrive = [&](bool solicited) {
        SendWr w = a.send(id++, 0, 10);
        if (solicited) w.flags |= abi::kSendSolicited;
        a.client.post_send(p, w);
        ASSERT_EQ(a.wait(1).size(), 1u);
        world.run_for(10'000);
    };
    arrive(false);
    EXPECT_TRUE(events.empty()) << "not armed";
    cq.ring.arm(false);
    arrive(false);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].cq_handle, cq.handle);
    EXPECT_EQ(events[0].generation, cq.generation);
    arrive(false);
    EXPECT_EQ(events.size(), 1u) << "one event an arming";
    cq.ring.arm(true);
    arrive(false);
    EXPECT_EQ(events.size(), 1u) << "armed for solicited only";
    arrive(true);
    EXPECT_EQ(events.size(), 2u);
    cq.ring.arm(true);
    b.client.to_state(q, IBV_QPS_ERR);
    world.run_for(10'000);
    EXPECT_EQ(events.size(), 3u) << "an unsuccessful completion counts as solicited (IBA 11.4.2.2)";
}

TEST_F(Pair, CqOverrunIsAnEventAndHurtsOnlyItsQps) {
    Cq& small = a.client.create_cq(4);
    Qp& q = a.client.create_qp(a.pd, small, small);
    Qp& p = b.qp();
    Qp& later = a.client.create_qp(a.pd, small, small);
    Qp& its_peer = b.qp();
    connect(a.client, q, b.client, p);
    connect(a.client, later, b.client, its_peer);
    join();
    const uint32_t depth = small.ring.depth;
    for (uint32_t i = 0; i < depth + 3; ++i) b.client.post_recv(p, i, {b.sge(0, 100)});
    for (uint32_t i = 0; i < depth + 3; ++i) a.client.post_send(q, a.send(i, 0, 10));
    world.run_for(5'000'000);
    const auto& asyncs = a.client.host().platform().asyncs[a.client.session()];
    EXPECT_TRUE(std::any_of(asyncs.begin(), asyncs.end(), [&](const auto& r) {
        return r.event_type == uint32_t(IBV_EVENT_CQ_ERR) && r.handle == small.handle;
    }));
    uint32_t kept = 0;
    for (auto e = a.client.poll(small); e; e = a.client.poll(small)) EXPECT_EQ(e->wr_id, kept++);
    EXPECT_EQ(kept, depth) << "what was there stays";
    const auto is_fatal = [&](const Qp& of) {
        return std::count_if(asyncs.begin(), asyncs.end(), [&](const auto& r) {
            return r.event_type == uint32_t(IBV_EVENT_QP_FATAL) && r.handle == of.handle;
        });
    };
    EXPECT_EQ(is_fatal(q), 1);
    EXPECT_EQ(is_fatal(later), 0) << "no completion of this QP was lost";
    b.client.post_recv(its_peer, 1, {b.sge(0, 100)});
    a.client.post_send(later, a.send(1, 0, 10));
    world.run_for(5'000'000);
    EXPECT_EQ(is_fatal(later), 1) << "its completion was lost, so it must not stay in RTS";
    b.client.post_recv(qb, 1, {b.sge(0, 100)});
    a.client.post_send(qa, a.send(1, 0, 10));
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ---- several engines ------------------------------------------------------------------------------------------------

struct ManyEngines : PairTest {
    ManyEngines() : PairTest({.engines = 2}) {}
};

TEST_F(ManyEngines, FramesOfAnotherEnginesQpAreHandedOver) {
    world.net().spread_by_chance(true);
    std::vector<std::pair<Qp*, Qp*>> pairs{{&qa, &qb}};
    for (int i = 0; i < 5; ++i) pairs.push_back({&a.qp(), &b.qp()});
    std::map<uint32_t, int> engines;
    for (auto [x, y] : pairs) {
        connect(a.client, *x, b.client, *y);
        ++engines[x->engine];
        for (uint64_t i = 0; i < 4; ++i) b.client.post_recv(*y, i, {b.sge(0, 8192)});
    }
    EXPECT_EQ(engines.size(), 2u) << "QPs are spread over the engines";
    for (uint64_t i = 0; i < 4; ++i)
        for (auto [x, y] : pairs) a.client.post_send(*x, a.send(i, 0, 6000));
    const auto done = a.wait(24);
    ASSERT_EQ(done.size(), 24u);
    for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::success);
    EXPECT_GT(world.host(1).counter(engine::Counter::handed_over), 0u);
    EXPECT_EQ(world.host(1).counter(engine::Counter::handover_full), 0u);
    EXPECT_EQ(b.wait(24).size(), 24u);
}

// ---- loopback -------------------------------------------------------------------------------------------------------

TEST(Loopback, TwoQpsOfOneDevice) {
    World world({.hosts = 1});
    {
        Side s(world, world.host(0));
        Qp& x = s.qp();
        Qp& y = s.qp();
        connect(s.client, x, s.client, y);
        fill(s.mr.data(), 5000, 3);
        s.client.post_recv(y, 1, {s.sge(8192, 5000)});
        s.client.post_send(x, s.send(2, 0, 5000));
        EXPECT_EQ(s.wait(2).size(), 2u);
        EXPECT_EQ(first_wrong(s.mr.data() + 8192, 5000, 3), -1);
    }
    EXPECT_EQ(world.shut_down(), "");
}

}  // namespace
}  // namespace roci::sim
