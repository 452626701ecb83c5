// Tests of shared receive queues: order of receives, limit event, query, resize, order of destruction, and the event
// LAST_WQE_REACHED.
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
        ibv_sge s = b->sge(id % 64 * 64, 64);
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

class SrqResize : public Srqs {
protected:
    void SetUp() override {
        Srqs::SetUp();
        ibv_device_attr attr{};
        ASSERT_EQ(ibv_query_device(b->context, &attr), 0);
        if ((attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0) GTEST_SKIP() << "SRQs cannot be resized";
        most = uint32_t(attr.max_srq_wr);
    }
    int resize(uint32_t max_wr) {
        ibv_srq_attr attr{};
        attr.max_wr = max_wr;
        return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
    }
    uint32_t room() {
        ibv_srq_attr attr{};
        EXPECT_EQ(ibv_query_srq(srq, &attr), 0);
        return attr.max_wr;
    }
    void deliver(uint64_t first, uint64_t end) {
        for (uint64_t i = first; i < end; ++i) {
            ASSERT_EQ(a->send(i, 0, 64), 0);
            EXPECT_DONE(*a, i);
            EXPECT_DONE(*b, i);
        }
    }
    uint32_t most = 0;
};

TEST_F(SrqResize, KeepsWhatIsQueuedInOrder) {
    for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(post(i), 0);
    deliver(0, 10);
    ASSERT_EQ(resize(500), 0);
    EXPECT_GE(room(), 500u);
    for (uint64_t i = 40; i < 400; ++i) ASSERT_EQ(post(i), 0) << i;
    deliver(10, 350);
    ASSERT_EQ(resize(50), 0) << "exactly what is queued";
    deliver(350, 400);
}

TEST_F(SrqResize, GrantsWhatItSays) {
    for (const uint32_t asked : {100u, 20u}) {
        ASSERT_EQ(resize(asked), 0);
        const uint32_t granted = room();
        EXPECT_GE(granted, asked);
        uint64_t posted = 0;
        while (posted < 10000 && post(posted % 64) == 0) ++posted;
        EXPECT_EQ(posted, granted);
        for (uint64_t i = 0; i < posted; ++i) deliver(i % 64, i % 64 + 1);
    }
}

TEST_F(SrqResize, IsRefusedWhole) {
    const uint32_t before = room();
    for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(post(i), 0);
    EXPECT_EQ(resize(0), EINVAL);
    EXPECT_EQ(resize(most + 1), EINVAL);
    EXPECT_EQ(resize(8), EINVAL) << "40 are queued";
    ibv_srq_attr attr{};
    attr.max_wr = 100;
    attr.srq_limit = 1000;
    EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(ibv_modify_srq(srq, &attr, 1 << 9), EINVAL);
    EXPECT_EQ(room(), before);
    deliver(0, 8);
    attr.srq_limit = 32;
    ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    EXPECT_EQ(resize(16), EINVAL) << "fewer than are queued, and than the limit";
    deliver(8, 40);
}

TEST_F(SrqResize, WhileMessagesArriveLosesNone) {
    constexpr uint64_t kMessages = 600;
    constexpr uint64_t kAhead = 16;
    for (uint64_t i = 0; i < kAhead; ++i) ASSERT_EQ(post(i % 64), 0);
    std::thread sender([&] {
        for (uint64_t i = 0; i < kMessages; ++i) {
            ASSERT_EQ(a->send(i, 0, 64), 0);
            EXPECT_DONE(*a, i);
        }
    });
    std::thread receiver([&] {
        for (uint64_t i = 0; i < kMessages; ++i) {
            EXPECT_DONE(*b, i % 64);
            EXPECT_EQ(post((i + kAhead) % 64), 0);
        }
    });
    for (uint32_t i = 0; i < 20; ++i) {
        EXPECT_EQ(resize(i % 2 == 0 ? 700 : 32), 0);
        std::this_thread::sleep_for(2ms);
    }
    sender.join();
    receiver.join();
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
