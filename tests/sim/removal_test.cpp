// Tests of what a QP sends when it is removed. A program may post a last message and then destroy the QP or end at once. The
// engine must send this message, within limits.
#include "datagram_fixture.hpp"
#include "engine/command.hpp"
#include "qp/shared.hpp"

namespace roci::sim {
namespace {

/// The limit of frames that removed QPs send between two rounds of the engine.
constexpr uint32_t kMost = 64;

/// Returns the number of frames that host 0 has sent from the QP `qpn`, or from any QP if `qpn` is 0. Only datagrams contain
/// the number of the sending QP.
size_t sent_by(World& world, uint32_t qpn = 0) {
    return size_t(std::ranges::count_if(world.net().capture(), [&](const Sent& s) {
        return s.from == 0 && s.parsed && (qpn == 0 || s.packet.src_qp.value == qpn);
    }));
}

struct Removal : UdTest {
    Qp& another(Side& s, uint32_t max_send_wr = 64) {
        Qp& q = s.qp({.type = IBV_QPT_UD, .max_send_wr = max_send_wr});
        ready(s, q, kQkey);
        return q;
    }
    void post(Qp& q, uint32_t count, uint32_t bytes = 100) {
        for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(a.client.post_send(q, datagram(i, bytes)));
    }
    void expect_arrival(uint64_t tag) {
        const auto got = b.wait(1);
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].status, WcStatus::success);
        EXPECT_EQ(first_wrong(b.mr.data() + 40, 100, tag), -1);
    }
    void post_last(uint64_t tag) {
        b.client.post_recv(ub, 1, {b.sge(0, 140)});
        fill(a.mr.data(), 100, tag);
        post(ua, 1);
    }
};

TEST_F(Removal, ADestroyedQpSendsItsLastDatagram) {
    post_last(4);
    a.client.destroy_qp(ua);
    expect_arrival(4);
}

TEST_F(Removal, TheEndOfASessionSendsTheLastDatagram) {
    post_last(5);
    a.client.close();
    expect_arrival(5);
}

TEST_F(Removal, ADestroyedQpSendsNoMoreThanItsShareOfARound) {
    Qp& q = another(a, 256);
    post(q, 200);
    a.client.destroy_qp(q);
    world.run_idle();
    EXPECT_EQ(sent_by(world), kMost);
}

/// No round passes between the removals of this world, so one budget must suffice for all of them.
TEST_F(Removal, TheEndOfASessionSendsAFrameOfEachQpAtLeast) {
    std::vector<Qp*> qps(100);
    for (Qp*& q : qps) q = &another(a);
    for (Qp* q : qps) post(*q, 64);
    a.client.close();
    world.run_idle();
    for (const Qp* q : qps) EXPECT_GE(sent_by(world, q->qpn), 1u);
    EXPECT_EQ(sent_by(world), kMost + qps.size() - 1);
}

/// While several users share the engine, rounds are shorter. Removed QPs then also send fewer frames between two rounds.
TEST_F(Removal, UsersWhoShareTheEngineGetNoLongRounds) {
    Side other{world, world.host(0), 0, 1 << 20, 1001};
    Qp& q = another(other);
    SendWr w = other.send(1, 0, 100);
    w.ah = other.client.create_ah(other.pd, b.client.self(ub));
    w.remote_qpn = ub.qpn;
    w.remote_qkey = kQkey;
    ASSERT_TRUE(other.client.post_send(q, w));
    world.run_for(100'000);
    world.net().clear_capture();
    post(ua, 64, 4096);
    a.client.destroy_qp(ua);
    EXPECT_EQ(sent_by(world), 0u) << "the frames leave with the next round";
    world.run_for(100'000);
    EXPECT_GE(sent_by(world), 16u);
    EXPECT_LE(sent_by(world), 24u);
    other.client.close();
}

TEST_F(Removal, AQpInErrorOrSqeSendsNothing) {
    Qp& failed = another(a);
    a.client.to_state(failed, IBV_QPS_ERR);
    SendWr wrong = datagram(1, 10);
    wrong.ah = 9999;
    a.client.post_send(ua, wrong);
    world.run_idle();
    ASSERT_EQ(a.client.query(ua).attr.qp_state, uint32_t(IBV_QPS_SQE));
    for (Qp* q : {&failed, &ua}) {
        post(*q, 1);
        a.client.destroy_qp(*q);
    }
    world.run_idle();
    EXPECT_EQ(sent_by(world), 0u);
}

TEST_F(Removal, ADatagramWithoutItsAddressHandleOrMemoryIsNotSent) {
    Qp &no_path = another(a), &no_memory = another(a);
    Mr& gone = a.client.reg_mr(a.pd, 4096);
    SendWr w = datagram(1, 100);
    w.sges = {{gone.address(), 100, gone.lkey}};
    ASSERT_TRUE(a.client.post_send(no_memory, w));
    a.client.dereg_mr(gone);
    w = datagram(2, 100);
    w.ah = a.client.create_ah(a.pd, b.client.self(ub));
    ASSERT_TRUE(a.client.post_send(no_path, w));
    ASSERT_EQ(a.client.try_call(abi::Op::destroy_ah, abi::HandleRequest{w.ah, 0}), 0);
    for (Qp* q : {&no_memory, &no_path}) a.client.destroy_qp(*q);
    world.run_idle();
    EXPECT_EQ(sent_by(world), 0u);
    post_last(7);  // other QPs of the session still work
    expect_arrival(7);
}

/// A program destroys an address handle at once after the posts. Its library sends what is posted first.
TEST_F(Removal, PostedDatagramsAreSentBeforeTheirAddressHandleIsDestroyed) {
    Qp& q = another(a, 256);
    SendWr w = datagram(1, 100);
    w.ah = a.client.create_ah(a.pd, b.client.self(ub));
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(a.client.post_send(q, w));
    uint32_t calls = 0;
    abi::SendPostedReply reply{.more = 1, .reserved = 0};
    for (; reply.more != 0 && calls < 100; ++calls) {
        ASSERT_EQ(a.client.try_call(abi::Op::send_posted, abi::HandleRequest{q.handle, 0}, reply), 0);
        EXPECT_LE(sent_by(world), kMost + calls) << "the budget of a round, then one frame per call";
    }
    ASSERT_EQ(a.client.try_call(abi::Op::destroy_ah, abi::HandleRequest{w.ah, 0}), 0);
    world.run_idle();
    EXPECT_EQ(sent_by(world, q.qpn), 100u);
    for (const auto& wc : a.wait(100)) EXPECT_EQ(wc.status, WcStatus::success);
    EXPECT_EQ(a.client.try_call(abi::Op::send_posted, abi::HandleRequest{9999, 0}, reply), ENOENT);
}

/// A removed QP does not wait for an access to memory that its owner could delay without limit.
TEST_F(Removal, ADatagramInSlowMemoryIsNotSent) {
    Mr& slow = a.client.reg_mr(a.pd, 4096, {.slow = true});
    world.host(0).platform().worker(a.client.pid())->stuck = true;
    Qp& q = another(a);
    for (const bool end : {false, true}) {
        SendWr w = datagram(1, 100);
        w.sges = {{slow.address(), 100, slow.lkey}};
        ASSERT_TRUE(a.client.post_send(end ? ua : q, w));
        end ? a.client.close() : a.client.destroy_qp(q);
        world.run_for(1'000'000);
        EXPECT_EQ(sent_by(world), 0u);
    }
}

/// The conductor (rocid's control thread) may execute some commands for a sleeping engine, but not the removal of a QP
/// that still has requests to send.
TEST_F(Removal, IsNoQuietCommandIfAMessageIsPosted) {
    engine::Engine& e = world.host(0).engine(0);
    engine::RemoveQp remove{.qp = world.host(0).shared().qps.find(ua.qpn)};
    EXPECT_TRUE(e.is_quiet(&remove));
    post(ua, 1);
    EXPECT_FALSE(e.is_quiet(&remove));
    world.run_idle();
    EXPECT_TRUE(e.is_quiet(&remove));
}

constexpr uint32_t kLimited = 1002;

TEST(RemovalBeyondTheRate, SendsNothing) {
    using host::LimitRule, host::UserLimits;
    World world({.limits = {.rules = {{LimitRule::Whom::user, kLimited, &UserLimits::packets_per_second, 10'000}}}});
    Side a{world, world.host(0), 0, 1 << 20, kLimited}, b{world, world.host(1)};
    const auto post_and_destroy = [&] {
        Qp &x = a.qp({.max_send_wr = 256}), &y = b.qp();
        connect(a.client, x, b.client, y);
        for (uint32_t i = 0; i < 200; ++i)
            ASSERT_TRUE(a.client.post_send(x, a.rdma(WrOpcode::rdma_write, i, 0, 64, b.mr.address(), b.mr.rkey)));
        a.client.destroy_qp(x);
    };
    post_and_destroy();
    world.run_for(1000);
    const size_t first = sent_by(world);
    EXPECT_LE(first, kMost) << "these frames exhaust the user's allowance";
    EXPECT_GE(first, 1u);
    post_and_destroy();
    world.run_for(1000);
    EXPECT_EQ(sent_by(world), first);
    EXPECT_EQ(world.shut_down(), "");
}

struct UcRemoval : UcTest {};

TEST_F(UcRemoval, ADestroyedQpSendsItsLastMessage) {
    b.client.post_recv(ub, 1, {b.sge(0, 4096)});
    fill(a.mr.data(), 3000, 8);
    ASSERT_TRUE(a.client.post_send(ua, a.send(1, 0, 3000)));
    a.client.destroy_qp(ua);
    ASSERT_EQ(b.wait(1).size(), 1u);
    EXPECT_EQ(first_wrong(b.mr.data(), 3000, 8), -1);
}

struct RcRemoval : PairTest {};

/// The packets are sent only once. Afterwards no QP is left that could send them again.
TEST_F(RcRemoval, ADestroyedQpSendsItsLastMessageOnce) {
    join();
    b.client.post_recv(qb, 1, {b.sge(0, 4096)});
    fill(a.mr.data(), 3000, 9);
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 3000)));
    world.net().blackout(1, world.now() + 10'000'000);  // the peer's ACK is lost
    a.client.destroy_qp(qa);
    const auto got = b.wait(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, WcStatus::success);
    EXPECT_EQ(first_wrong(b.mr.data(), 3000, 9), -1);
    world.run_for(1'000'000'000);
    EXPECT_EQ(sent_by(world), 3u);
}

TEST_F(RcRemoval, TheEndOfASessionSendsTheLastMessage) {
    join();
    b.client.post_recv(qb, 1, {b.sge(0, 4096)});
    fill(a.mr.data(), 3000, 10);
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 3000)));
    a.client.close();
    ASSERT_EQ(b.wait(1).size(), 1u);
    EXPECT_EQ(first_wrong(b.mr.data(), 3000, 10), -1);
}

/// On a path with a long round trip, congestion control spreads packets over the round trip. The last messages do not wait.
struct FarRemoval : PairTest {
    static constexpr uint32_t kBatch = 32;
    FarRemoval() : PairTest({.congestion = cc::Policy::adaptive}, {.max_send_wr = 64, .max_recv_wr = 512}) {
        for (uint32_t h = 0; h < 2; ++h) world.net().link(world.host(h).endpoint(0)).latency = 5'000'000;
    }
    void post_batch() {
        for (uint32_t i = 0; i < kBatch; ++i) ASSERT_TRUE(a.client.post_send(qa, a.send(i, 0, 100)));
    }
};

TEST_F(FarRemoval, APacedQpSendsItsLastMessages) {
    PathOptions path;
    path.timeout = 17;
    join(path);
    for (uint32_t i = 0; i < 11 * kBatch; ++i) b.client.post_recv(qb, i, {b.sge(0, 4096)});
    for (int i = 0; i < 10; ++i) {
        post_batch();
        ASSERT_EQ(a.wait(kBatch).size(), kBatch);
        ASSERT_EQ(b.wait(kBatch).size(), kBatch);
    }
    const size_t before = sent_by(world);
    post_batch();
    world.run_for(10'000);
    ASSERT_LT(sent_by(world), before + kBatch) << "the QP is paced";
    a.client.destroy_qp(qa);
    EXPECT_EQ(b.wait(kBatch).size(), kBatch);
}

/// A QP that is not connected sends nothing, even if its send queue contains requests.
TEST_F(RcRemoval, AQpBeforeRtsSendsNothing) {
    a.client.to_init(qa);
    ASSERT_TRUE(a.client.post_send(qa, a.send(1, 0, 100)));
    a.client.destroy_qp(qa);
    world.run_idle();
    EXPECT_EQ(sent_by(world), 0u);
}

}  // namespace
}  // namespace roci::sim
