// Tests of how the requester reacts to RNR NAKs, local errors, errors of the responder, SQD and missing credits.
#include "fixture.hpp"

namespace roci::sim {
namespace {

using Requester = PuppetTest;

// ---- RNR ------------------------------------------------------------------------------------------------------------

TEST_F(Requester, WaitsTheTimeOfAnRnrNak) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    const auto first = puppet.next();
    ASSERT_TRUE(first);
    puppet.send_ack(0x100, 0, rnr_nak(14));  // code 14: 1.28 ms (IBA table 46)
    const Nanos from = world.now();
    const auto again = puppet.next();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->psn(), 0x100u);
    EXPECT_GE(again->when - from, 1'280'000u);
    EXPECT_LE(again->when - from, 2 * 1'280'000u);
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, RnrRetryLimitIsExact) {
    for (uint8_t retries : std::initializer_list<uint8_t>{0, 1, 6}) {
        SCOPED_TRACE(int(retries));
        Qp& q = a.qp();
        PathOptions o;
        o.rnr_retry = retries;
        connect(a.client, q, puppet, o);
        a.client.post_send(q, a.send(7, 0, 100));
        for (int i = 0; i <= retries; ++i) {
            ASSERT_TRUE(puppet.next()) << i;
            puppet.send_ack(0x100, 0, rnr_nak(1));
        }
        EXPECT_TRUE(puppet.listen(10'000'000).empty());
        const auto done = a.poll_all();
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].status, WcStatus::rnr_retry_exc_err);
    }
}

TEST_F(Requester, RnrRetrySevenIsForEver) {
    join();
    a.client.post_send(qp, a.send(7, 0, 100));
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(puppet.next()) << i;
        puppet.send_ack(0x100, 0, rnr_nak(1));
    }
    ASSERT_TRUE(puppet.next());
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

// The NAK code determines the status of the WQE whose PSN is in the NAK (IBA 9.9.2.4.2, 11.6.2). All later WQEs are
// flushed.
TEST_F(Requester, NakCodesBecomeTheirStatus) {
    const std::pair<uint8_t, WcStatus> cases[] = {{kNakInvalid, WcStatus::rem_inv_req_err},
                                                  {kNakAccess, WcStatus::rem_access_err},
                                                  {kNakOperational, WcStatus::rem_op_err}};
    for (const auto& [syndrome, status] : cases) {
        Qp& q = a.qp();
        connect(a.client, q, puppet, {});
        for (uint64_t i = 0; i < 3; ++i) a.client.post_send(q, a.send(i, 0, 100));
        ASSERT_EQ(puppet.listen(50'000).size(), 3u);
        puppet.send_ack(0x101, 1, syndrome);
        const auto done = a.wait(3);
        ASSERT_EQ(done.size(), 3u);
        EXPECT_EQ(done[0].status, WcStatus::success) << "a NAK acknowledges what is before it";
        EXPECT_EQ(done[1].status, status);
        EXPECT_EQ(done[2].status, WcStatus::wr_flush_err);
        EXPECT_EQ(a.client.query(q).attr.qp_state, uint32_t(IBV_QPS_ERR));
    }
}

TEST_F(Requester, ReservedSyndromesAreIgnored) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    for (uint8_t s : std::initializer_list<uint8_t>{0x40, 0x5f, 0x65, 0x7f}) puppet.send_ack(0x100, 1, s);
    world.run_for(50'000);
    EXPECT_TRUE(a.poll_all().empty());
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

TEST_F(Requester, LocalProtectionErrorSendsNothingOfThatRequest) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    SendWr bad = a.send(2, 0, 100);
    bad.sges[0].addr = a.mr.address() + a.mr.length - 50;
    a.client.post_send(qp, bad);
    a.client.post_send(qp, a.send(3, 0, 100));
    const auto got = puppet.listen(50'000);
    EXPECT_EQ(psns(got), range(0x100, 1));
    puppet.send_ack(0x100, 1);
    const auto done = a.wait(3);
    ASSERT_EQ(done.size(), 3u);
    EXPECT_EQ(done[0].status, WcStatus::success) << "what was before it is not hurt";
    EXPECT_EQ(done[1].status, WcStatus::loc_prot_err);
    EXPECT_EQ(done[2].status, WcStatus::wr_flush_err);
}

TEST_F(Requester, BadLkeyForeignPdAndStaleKeyAreLocalProtectionErrors) {
    const uint32_t other_pd = a.client.alloc_pd();
    Mr& foreign = a.client.reg_mr(other_pd, 4096);
    Mr& stale = a.client.reg_mr(a.pd, 4096);
    const uint32_t stale_key = stale.lkey;
    a.client.dereg_mr(stale);
    for (const Sge& s : {Sge{a.mr.address(), 10, 0}, Sge{a.mr.address(), 10, 0xffffffff}, Sge{a.mr.address(), 10, a.mr.lkey ^ 1},
                         Sge{foreign.address(), 10, foreign.lkey}, Sge{stale.address(), 10, stale_key}}) {
        Qp& q = a.qp();
        connect(a.client, q, puppet, {});
        SendWr w = a.send(1, 0, 1);
        w.sges = {s};
        a.client.post_send(q, w);
        EXPECT_EQ(a.wait_status(), WcStatus::loc_prot_err);
        EXPECT_TRUE(puppet.listen(20'000).empty());
    }
}

// In SQD the requester starts no new request. When all started requests are complete, the engine sends the event (IBA
// 10.3.1.5).
TEST_F(Requester, SqdDrainsAndRtsGoesOn) {
    join();
    a.client.post_send(qp, a.send(1, 0, 100));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    abi::QpAttr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(a.client.try_modify(qp, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, attr), 0) << a.client.reason();
    a.client.post_send(qp, a.send(2, 0, 100));
    EXPECT_TRUE(puppet.listen(50'000).empty()) << "nothing new in SQD";
    auto& asyncs = a.client.host().platform().asyncs[a.client.session()];
    EXPECT_TRUE(asyncs.empty()) << "not drained while an ACK is awaited";
    puppet.send_ack(0x100, 1);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
    world.run_for(50'000);
    ASSERT_EQ(asyncs.size(), 1u);
    EXPECT_EQ(asyncs[0].event_type, uint32_t(IBV_EVENT_SQ_DRAINED));
    EXPECT_EQ(asyncs[0].handle, qp.handle);
    a.client.to_state(qp, IBV_QPS_RTS);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x101, 1));
    puppet.send_ack(0x101, 2);
    EXPECT_EQ(a.wait_status(), WcStatus::success);
}

// End-to-end credits (IBA 9.7.7.2). Without credits the requester may send one SEND as a probe.
TEST_F(Requester, CreditsHoldSendsBack) {
    join();
    a.client.post_send(qp, a.send(1, 0, 10));
    ASSERT_EQ(puppet.listen(50'000).size(), 1u);
    puppet.send_ack(0x100, 1, 0);  // ACK with credit code 0: no credits
    EXPECT_TRUE(puppet.listen(50'000).empty());
    for (uint64_t i = 2; i < 9; ++i) a.client.post_send(qp, a.send(i, 0, 10));
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x101, 1)) << "one probe";
    puppet.send_ack(0x101, 2, 2);  // two credits
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x102, 3)) << "two, and a probe";
    puppet.send_ack(0x104, 5, 31);
    EXPECT_EQ(psns(puppet.listen(50'000)), range(0x105, 3)) << "no credits counted: no limit";
    puppet.send_ack(0x107, 8, 31);
    EXPECT_EQ(a.wait(8).size(), 8u);
}

}  // namespace
}  // namespace roci::sim
