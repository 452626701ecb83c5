// Shared receive queues: sharing, limit event, query, order of destruction, last WQE reached.
#include "fixture.hpp"

namespace verbs_test {
namespace {

class Srqs : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        ibv_srq_init_attr attr{};
        attr.attr = {64, 2, 0};
        srq = ibv_create_srq(b->pd, &attr);
        ASSERT_NE(srq, nullptr);
        EXPECT_GE(attr.attr.max_wr, 64u);
        Shape with_srq;
        with_srq.srq = srq;
        const Shape plain;
        connect(plain, &with_srq);
    }
    void TearDown() override {
        if (b->qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(b->qp), 0);
        }
        b->qp = nullptr;
        if (srq != nullptr) {
            EXPECT_EQ(ibv_destroy_srq(srq), 0);
        }
    }
    int post(uint64_t id) {
        ibv_sge s = b->sge(id * 64, 64);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &s;
        wr.num_sge = 1;
        return ibv_post_srq_recv(srq, &wr, &bad);
    }
    ibv_srq* srq = nullptr;
};

TEST_F(Srqs, ServesInOrder) {
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(post(i), 0);
    for (uint64_t i = 0; i < 20; ++i) {
        ASSERT_EQ(a->send(i, 0, 64), 0);
        EXPECT_DONE(*a, i);
        EXPECT_DONE(*b, i);
    }
}

TEST_F(Srqs, HasNoReceiveQueueBesides) { EXPECT_NE(b->receive(1, 0, 64), 0); }

TEST_F(Srqs, TheLimitIsAnEventOnce) {
    for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(post(i), 0);
    ibv_srq_attr attr{};
    attr.srq_limit = 9;
    ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
    EXPECT_EQ(attr.srq_limit, 9u);
    for (uint64_t i = 0; i < 2; ++i) {
        ASSERT_EQ(a->send(i, 0, 8), 0);
        EXPECT_DONE(*b, i);
    }
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(b->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
    EXPECT_EQ(attr.srq_limit, 0u) << "the event disarms it";
}

TEST_F(Srqs, OneInUseStays) { EXPECT_EQ(ibv_destroy_srq(srq), EBUSY); }

TEST_F(Srqs, AFullQueueIsEnomem) {
    ibv_srq_attr attr{};
    ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
    uint32_t posted = 0;
    int err = 0;
    while (posted < 100000 && (err = post(posted % 64)) == 0) ++posted;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(posted, attr.max_wr);
}

TEST_F(Srqs, AQpInErrorReportsItsLastWqe) {
    ASSERT_EQ(b->to_state(IBV_QPS_ERR), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(b->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_EQ(event.element.qp, b->qp);
    ibv_ack_async_event(&event);
}

TEST_F(Srqs, SizesBeyondTheDeviceAreRefused) {
    ibv_device_attr dev{};
    ASSERT_EQ(ibv_query_device(b->context, &dev), 0);
    ibv_srq_init_attr attr{};
    attr.attr = {uint32_t(dev.max_srq_wr) + 1, 1, 0};
    EXPECT_EQ(ibv_create_srq(b->pd, &attr), nullptr);
    attr.attr = {16, uint32_t(dev.max_srq_sge) + 1, 0};
    EXPECT_EQ(ibv_create_srq(b->pd, &attr), nullptr);
}

}  // namespace
}  // namespace verbs_test
