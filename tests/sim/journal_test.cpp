// Tests of the journal of a QP and of vendor_err. At both ends, the journal and vendor_err must contain the reason of a failure.
// A QP without unusual events must have no journal.
#include "fixture.hpp"
#include "qp/state.hpp"

namespace roci::sim {
namespace {

using abi::Reason;

class JournalTest : public ::testing::Test {
protected:
    World world{{.seed = 1}};
    Side a{world, world.host(0)}, b{world, world.host(1)};
    Qp *qa = nullptr, *qb = nullptr;
    PathOptions path;

    void join() {
        qa = &a.qp();
        qb = &b.qp();
        connect(a.client, *qa, b.client, *qb, path);
    }
    const qp::Qp& engine_qp(uint32_t host, const Qp& qp) { return *world.host(host).shared().qps.find(qp.qpn); }
    const qp::Journal* journal(uint32_t host, const Qp& qp) { return engine_qp(host, qp).journal.get(); }
    /// Returns the newest reason in the journal that is neither `none` nor `flushed`. Returns `none` if there is no
    /// such reason.
    Reason reason_at(uint32_t host, const Qp& qp) {
        const qp::Journal* j = journal(host, qp);
        for (uint32_t i = j != nullptr ? j->count() : 0; i-- != 0;)
            if (j->at(i).reason != Reason::none && j->at(i).reason != Reason::flushed) return j->at(i).reason;
        return Reason::none;
    }
    /// Posts a request on side `a` and returns the vendor_err of its completion.
    Reason failure_of(const SendWr& wr) {
        EXPECT_TRUE(a.client.post_send(*qa, wr));
        const auto got = a.wait(1);
        EXPECT_EQ(got.size(), 1u);
        return got.empty() ? Reason::none : Reason(got[0].vendor_err);
    }
};

TEST_F(JournalTest, AQpThatWorksHasNone) {
    join();
    ASSERT_TRUE(b.client.post_recv(*qb, 1, {b.sge(0, 4096)}));
    EXPECT_EQ(failure_of(a.send(1, 0, 4096)), Reason::none);
    EXPECT_EQ(journal(0, *qa), nullptr);
    EXPECT_EQ(journal(1, *qb), nullptr);
}

TEST_F(JournalTest, ARefusedRKeyIsNamedWithItsRegion) {
    join();
    const uint32_t other = b.client.alloc_pd();
    Mr& foreign = b.client.reg_mr(other, 4096);
    Mr& read_only = b.client.reg_mr(b.pd, 4096, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
    struct Case {
        uint64_t va;
        uint32_t rkey;
        Reason there;
    };
    for (const Case& c :
         {Case{b.mr.address(), 0xdeadbeef, Reason::rkey_unknown}, Case{foreign.address(), foreign.rkey, Reason::rkey_other_pd},
          Case{read_only.address(), read_only.rkey, Reason::rkey_no_right},
          Case{b.mr.address() + b.mr.length - 7, b.mr.rkey, Reason::rkey_range}}) {
        join();
        EXPECT_EQ(failure_of(a.rdma(WrOpcode::rdma_write, 1, 0, 8, c.va, c.rkey)), Reason::peer_refused_access);
        EXPECT_EQ(reason_at(0, *qa), Reason::peer_refused_access);
        EXPECT_EQ(reason_at(1, *qb), c.there);
        const qp::RefusedAccess& seen = journal(1, *qb)->access;
        EXPECT_EQ(seen.key, c.rkey);
        EXPECT_EQ(seen.va, c.va);
        EXPECT_EQ(seen.length, 8u);
        EXPECT_EQ(seen.needed, uint32_t(IBV_ACCESS_REMOTE_WRITE));
        EXPECT_EQ(seen.size, c.there == Reason::rkey_unknown ? 0u : c.rkey == b.mr.rkey ? b.mr.length : 4096u);
    }
}

TEST_F(JournalTest, AWrongLKeyIsNamed) {
    join();
    EXPECT_EQ(failure_of({.id = 1, .opcode = WrOpcode::send, .sges = {{a.mr.address(), 64, 0xdead00}}}), Reason::lkey_unknown);
    EXPECT_EQ(journal(0, *qa)->access.key, 0xdead00u);
    join();
    const SendWr beyond{.id = 1, .opcode = WrOpcode::send, .sges = {{a.mr.address() + a.mr.length - 1, 64, a.mr.lkey}}};
    EXPECT_EQ(failure_of(beyond), Reason::lkey_range);
}

TEST_F(JournalTest, WhatTheQpMayNotDoIsNamed) {
    path.access = IBV_ACCESS_LOCAL_WRITE;
    join();
    EXPECT_EQ(failure_of(a.rdma(WrOpcode::rdma_write, 1, 0, 8, b.mr.address(), b.mr.rkey)), Reason::peer_refused_request);
    EXPECT_EQ(reason_at(1, *qb), Reason::access_flags);
}

TEST_F(JournalTest, AReceiveThatIsTooSmallIsNamedAtBothEnds) {
    join();
    ASSERT_TRUE(b.client.post_recv(*qb, 1, {b.sge(0, 16)}));
    EXPECT_EQ(failure_of(a.send(1, 0, 4096)), Reason::peer_refused_request);
    EXPECT_EQ(reason_at(1, *qb), Reason::receive_too_small);
    const auto received = b.wait(1);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(Reason(received[0].vendor_err), Reason::receive_too_small);
}

TEST_F(JournalTest, ASilentPeerIsNamed) {
    path.retry_cnt = 2;
    qa = &a.qp();
    qb = &b.qp();
    connect(a.client, *qa, b.client, *qb, path);
    b.client.to_state(*qb, IBV_QPS_RESET);
    EXPECT_EQ(failure_of(a.send(1, 0, 64)), Reason::peer_silent);
    const qp::Journal& j = *journal(0, *qa);
    uint32_t timeouts = 0;
    for (uint32_t i = 0; i < j.count(); ++i)
        if (j.at(i).what == qp::Happening::timeout) timeouts += j.at(i).times;
    EXPECT_EQ(timeouts, 3u) << "the first attempt and two retries";
}

TEST_F(JournalTest, WaitingForAReceiveIsOneEntryHoweverLong) {
    path.rnr_retry = 7;
    join();
    ASSERT_TRUE(a.client.post_send(*qa, a.send(1, 0, 64)));
    world.run_for(20'000'000);
    ASSERT_NE(journal(0, *qa), nullptr);
    const qp::Journal& j = *journal(0, *qa);
    ASSERT_EQ(j.count(), 2u);
    EXPECT_EQ(j.at(0).what, qp::Happening::state);
    EXPECT_EQ(j.at(1).what, qp::Happening::rnr_nak_received);
    EXPECT_GT(j.at(1).times, 10u);
}

TEST_F(JournalTest, FlushedRequestsPointToTheFirstFailure) {
    join();
    ASSERT_TRUE(a.client.post_send(*qa, a.rdma(WrOpcode::rdma_write, 1, 0, 8, b.mr.address(), 0xbad00)));
    ASSERT_TRUE(a.client.post_send(*qa, a.send(2, 0, 8)));
    const auto got = a.wait(2);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(Reason(got[0].vendor_err), Reason::peer_refused_access);
    EXPECT_EQ(Reason(got[1].vendor_err), Reason::flushed);
}

TEST(Journal, KeepsTheLastEntries) {
    qp::Journal j;
    for (uint32_t i = 0; i < 1000; ++i) j.add(i, qp::Happening::state, uint8_t(i % 5), Psn(i), Reason::none);
    ASSERT_EQ(j.count(), qp::Journal::kEntries);
    for (uint32_t i = 0; i < j.count(); ++i) EXPECT_EQ(j.at(i).first, 1000 - qp::Journal::kEntries + i);
}

}  // namespace
}  // namespace roci::sim
