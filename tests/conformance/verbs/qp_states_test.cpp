// Tests of queue pairs: transitions, attributes, queries, draining, errors, posting of lists, overflow, and
// destruction with outstanding requests.
#include "fixture.hpp"

namespace verbs_test {
namespace {

class QpStates : public Pair {};

TEST_F(QpStates, TheWayUpNeedsEveryStep) {
    ASSERT_NE(a->create(), nullptr);
    ASSERT_NE(b->create(), nullptr);
    EXPECT_EQ(a->state(), IBV_QPS_RESET);
    EXPECT_NE(a->to_rts(1), 0);
    EXPECT_NE(a->to_rtr(*b, b->qp->qp_num, 1), 0);
    EXPECT_EQ(a->state(), IBV_QPS_RESET);
    ibv_qp_attr bare{};
    bare.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(a->qp, &bare, IBV_QP_STATE), EINVAL) << "port, P_Key index and access flags are missing";
    bare.port_num = 2;
    EXPECT_EQ(ibv_modify_qp(a->qp, &bare, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
    ASSERT_EQ(a->to_init(), 0);
    EXPECT_EQ(a->state(), IBV_QPS_INIT);
    EXPECT_NE(a->to_rts(1), 0);
    ASSERT_EQ(a->to_rtr(*b, b->qp->qp_num, 1), 0);
    EXPECT_EQ(a->state(), IBV_QPS_RTR);
    EXPECT_NE(a->to_init(), 0);
    ASSERT_EQ(a->to_rts(1), 0);
    EXPECT_EQ(a->state(), IBV_QPS_RTS);
    EXPECT_EQ(a->to_state(IBV_QPS_RESET), 0);
    EXPECT_EQ(a->to_init(), 0);
    EXPECT_EQ(a->to_state(IBV_QPS_ERR), 0);
    EXPECT_EQ(a->state(), IBV_QPS_ERR);
    EXPECT_NE(a->to_init(), 0) << "from error only to reset";
}

/// Tests all pairs of states except those that the loops skip. Each call passes all attributes of a legal transition.
/// So only an illegal transition can be the reason for a refusal.
TEST_F(QpStates, OnlyTheStepsOfTheTableAreTaken) {
    const auto legal = [](ibv_qp_state from, ibv_qp_state to) {
        if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
        switch (from) {
            case IBV_QPS_RESET:
                return to == IBV_QPS_INIT;
            case IBV_QPS_INIT:
                return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
            case IBV_QPS_RTR:
                return to == IBV_QPS_RTS;
            case IBV_QPS_RTS:
            case IBV_QPS_SQD:
                return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
            default:
                return false;
        }
    };
    ASSERT_NE(a->create(), nullptr);
    ASSERT_NE(b->create(), nullptr);
    const auto step = [&](ibv_qp_state from, ibv_qp_state to) {
        if (to == IBV_QPS_INIT) return a->to_init();
        if (to == IBV_QPS_RTR) return a->to_rtr(*b, b->qp->qp_num, 1);
        if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) return a->to_rts(1);
        return a->to_state(to);
    };
    constexpr ibv_qp_state kWay[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
    constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                        IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
    for (const ibv_qp_state from : kStates) {
        if (from == IBV_QPS_SQE) continue;  // an RC QP has no state SQE
        for (const ibv_qp_state to : kStates) {
            if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) continue;  // devices differ in the transition from RESET to ERR
            ASSERT_EQ(a->to_state(IBV_QPS_RESET), 0);
            ibv_qp_state now = IBV_QPS_RESET;
            for (const ibv_qp_state next : kWay) {
                if (now == from || from == IBV_QPS_ERR) break;
                ASSERT_EQ(step(now, next), 0);
                now = next;
            }
            if (from == IBV_QPS_ERR) {
                ASSERT_EQ(a->to_init(), 0);
                ASSERT_EQ(a->to_state(IBV_QPS_ERR), 0);
            }
            ASSERT_EQ(a->state(), from);
            EXPECT_EQ(step(from, to) == 0, legal(from, to)) << from << " to " << to;
            EXPECT_EQ(a->state(), legal(from, to) ? to : from);
        }
    }
}

TEST_F(QpStates, QueryTellsWhatWasSet) {
    connect();
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_TIMEOUT, &init), 0);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(attr.dest_qp_num, b->qp->qp_num);
    EXPECT_EQ(attr.timeout, 12);
    EXPECT_EQ(attr.retry_cnt, 7);
    EXPECT_EQ(attr.max_rd_atomic, 4);
    EXPECT_EQ(attr.max_dest_rd_atomic, 4);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.qp_access_flags, unsigned(kFullAccess));
    EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, b->gid.raw, 16), 0);
    EXPECT_EQ(attr.cap.max_send_wr, a->cap.max_send_wr);
    EXPECT_EQ(init.qp_type, IBV_QPT_RC);
    EXPECT_EQ(init.send_cq, a->cq);
}

TEST_F(QpStates, NothingIsPostedTooEarly) {
    ASSERT_NE(a->create(), nullptr);
    EXPECT_NE(a->receive(1, 0, 8), 0) << "reset";
    EXPECT_NE(a->send(1, 0, 8), 0);
    ASSERT_EQ(a->to_init(), 0);
    EXPECT_EQ(a->receive(1, 0, 8), 0);
    EXPECT_NE(a->send(1, 0, 8), 0) << "init";
}

TEST_F(QpStates, ErrorFlushesBothQueuesInOrder) {
    connect();
    for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(a->receive(i, 0, 64), 0);
    // B has posted no receive, so none of these sends completes.
    for (uint64_t i = 10; i < 15; ++i) ASSERT_EQ(a->send(i, 0, 64), 0);
    ASSERT_EQ(a->to_state(IBV_QPS_ERR), 0);
    uint64_t next_receive = 0, next_send = 10;
    for (int i = 0; i < 10; ++i) {
        const ibv_wc wc = a->poll();
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        uint64_t& next = wc.wr_id < 10 ? next_receive : next_send;
        EXPECT_EQ(wc.wr_id, next++);
    }
    ASSERT_EQ(a->send(20, 0, 8), 0) << "posting in error is allowed, and flushed";
    EXPECT_EQ(a->poll().status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(a->receive(21, 0, 8), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(QpStates, ResetForgetsAndTheQpWorksAgain) {
    connect();
    for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(a->send(i, 0, 64), 0);
    ASSERT_EQ(a->to_state(IBV_QPS_RESET), 0);
    ASSERT_EQ(b->to_state(IBV_QPS_RESET), 0);
    EXPECT_TRUE(a->quiet());
    raise();
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(a->send(2, 0, 64), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_DONE(*b, 1);
}

TEST_F(QpStates, DrainingFinishesWhatWasBegunAndHoldsTheRest) {
    connect();
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ASSERT_EQ(a->send(0, 0, 64), 0);
    EXPECT_DONE(*a, 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(a->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event.element.qp, a->qp);
    ibv_ack_async_event(&event);
    ASSERT_EQ(a->send(1, 0, 64), 0);
    EXPECT_TRUE(a->quiet());
    EXPECT_EQ(a->to_state(IBV_QPS_RTS), 0);
    EXPECT_DONE(*a, 1);
}

TEST_F(QpStates, ADatagramErrorStopsTheSendQueueOnly) {
    Shape ud;
    ud.type = IBV_QPT_UD;
    connect(ud);
    ibv_ah_attr address = End::address_of(*b);
    ibv_ah* ah = ibv_create_ah(a->pd, &address);
    const auto to_b = [&](ibv_send_wr& wr) { wr.wr.ud = {ah, b->qp->qp_num, kQkey}; };
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, 0, 64,
                      [&](ibv_send_wr& wr) {
                          to_b(wr);
                          wr.sg_list->lkey ^= 0x77;
                      }),
              0);
    EXPECT_EQ(a->poll().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a->state(), IBV_QPS_SQE);
    ASSERT_EQ(a->to_state(IBV_QPS_RTS), 0);
    ASSERT_EQ(b->receive(2, 0, 256), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 3, 0, 64, to_b), 0);
    EXPECT_DONE(*a, 3);
    EXPECT_DONE(*b, 2);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(QpStates, AFullQueueSaysEnomemAndLosesNothing) {
    Shape small;
    small.send_wr = small.recv_wr = 8;
    connect(small);
    uint32_t receives = 0, sends = 0;
    int err = 0;
    while (receives < 10000 && (err = b->receive(receives, 0, 64)) == 0) ++receives;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(receives, b->cap.max_recv_wr);
    ASSERT_EQ(b->to_state(IBV_QPS_RESET), 0);  // b is in RESET, so no send of a completes
    while (sends < 10000 && (err = a->send(sends, 0, 8)) == 0) ++sends;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(sends, a->cap.max_send_wr);
    ASSERT_EQ(a->to_state(IBV_QPS_ERR), 0);
    for (uint64_t i = 0; i < sends; ++i) EXPECT_EQ(a->poll().wr_id, i);
}

TEST_F(QpStates, AListStopsAtItsBadRequest) {
    connect();
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr list[3] = {};
    for (int i = 0; i < 3; ++i) {
        list[i].wr_id = uint64_t(i);
        list[i].opcode = IBV_WR_SEND;
        list[i].send_flags = IBV_SEND_SIGNALED;
        list[i].sg_list = &s;
        list[i].num_sge = 1;
        list[i].next = i < 2 ? &list[i + 1] : nullptr;
    }
    list[1].num_sge = int(a->cap.max_send_sge) + 1;
    ibv_send_wr* bad = nullptr;
    EXPECT_NE(ibv_post_send(a->qp, list, &bad), 0);
    EXPECT_EQ(bad, &list[1]);
    EXPECT_DONE(*a, 0);
    EXPECT_DONE(*b, 0);
    EXPECT_TRUE(a->quiet());
}

TEST_F(QpStates, MoreThanTheDeviceHasIsRefused) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
    Shape large;
    large.send_wr = uint32_t(attr.max_qp_wr) + 1;
    EXPECT_EQ(a->create(large), nullptr);
    large = {};
    large.sge = uint32_t(attr.max_sge) + 1;
    EXPECT_EQ(a->create(large), nullptr);
}

TEST_F(QpStates, UnsignalledRequestsCompleteSilently) {
    connect();
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    for (uint64_t i = 0; i < 3; ++i)
        ASSERT_EQ(
            a->post(IBV_WR_SEND, i, 0, 8, [&](ibv_send_wr& wr) { wr.send_flags = i == 2 ? unsigned(IBV_SEND_SIGNALED) : 0; }), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_TRUE(a->quiet());
}

TEST_F(QpStates, DestructionWithWorkOutstandingHurtsNobody) {
    connect();
    for (uint64_t i = 0; i < 30; ++i) ASSERT_EQ(a->write(*b, i, 0, 8192, 0), 0);
    EXPECT_EQ(ibv_destroy_qp(a->qp), 0);
    a->qp = nullptr;
    ASSERT_NE(a->create(), nullptr);
    ASSERT_EQ(b->to_state(IBV_QPS_RESET), 0);
    raise();
    ASSERT_EQ(a->write(*b, 1000, 0, 64, 0), 0);
    EXPECT_DONE(*a, 1000);
}

}  // namespace
}  // namespace verbs_test
