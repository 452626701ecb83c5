// Tests of completion queues: creation, order, fields, resizing, overrun, destruction, extended polling and
// moderation.
#include <poll.h>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Cqs : public Pair {};

TEST_F(Cqs, CreationChecksItsArguments) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
    EXPECT_EQ(ibv_create_cq(a->context, 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_create_cq(a->context, attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_create_cq(a->context, 16, nullptr, nullptr, -1), nullptr);
    EXPECT_EQ(ibv_create_cq(a->context, 16, nullptr, nullptr, a->context->num_comp_vectors), nullptr);
    ibv_cq* cq = ibv_create_cq(a->context, 17, this, nullptr, a->context->num_comp_vectors - 1);
    ASSERT_NE(cq, nullptr);
    EXPECT_GE(cq->cqe, 17);
    EXPECT_EQ(cq->cq_context, this);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Cqs, CompletionsComeInOrderAndOnce) {
    connect();
    for (uint64_t i = 0; i < 50; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    for (uint64_t i = 0; i < 50; ++i) ASSERT_EQ(a->send(i, 0, 16), 0);
    for (uint64_t i = 0; i < 50; ++i) {
        EXPECT_DONE(*a, i);
        EXPECT_DONE(*b, i);
    }
    EXPECT_TRUE(a->quiet());
    EXPECT_TRUE(b->quiet());
}

TEST_F(Cqs, ADestroyIsRefusedWhileAQpUsesIt) {
    connect();
    EXPECT_EQ(ibv_destroy_cq(a->cq), EBUSY);
}

TEST_F(Cqs, ResizingKeepsWhatIsQueued) {
    Shape small;
    small.cqe = 32;
    connect(small);
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(a->send(i, 0, 16), 0);
    for (uint64_t i = 0; i < 20; ++i) EXPECT_DONE(*a, i);
    std::this_thread::sleep_for(50ms);
    EXPECT_DONE(*b, 0);
    EXPECT_NE(ibv_resize_cq(b->cq, 8), 0) << "19 entries do not fit";
    ASSERT_EQ(ibv_resize_cq(b->cq, 500), 0);
    EXPECT_GE(b->cq->cqe, 500);
    for (uint64_t i = 1; i < 20; ++i) EXPECT_DONE(*b, i);
    ASSERT_EQ(ibv_resize_cq(b->cq, 16), 0);
    ASSERT_EQ(b->receive(99, 0, 64), 0);
    ASSERT_EQ(a->send(98, 0, 16), 0);
    EXPECT_DONE(*b, 99);
    EXPECT_DONE(*a, 98);
}

TEST_F(Cqs, AnOverrunIsAnEventAndTheEndOfTheCq) {
    Shape tiny;
    tiny.cqe = 4;
    tiny.send_wr = 64;
    ASSERT_NE(a->create(tiny), nullptr);
    ASSERT_NE(b->create(), nullptr);
    raise();
    const int room = a->cq->cqe;
    for (int i = 0; i < room + 8; ++i)
        if (a->write(*b, uint64_t(i), 0, 8, 0) != 0) break;
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(a->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, a->cq);
    ibv_ack_async_event(&event);
    pollfd more{a->context->async_fd, POLLIN, 0};
    ASSERT_EQ(poll(&more, 1, 5000), 1) << "the QP's own event";
    ASSERT_EQ(ibv_get_async_event(a->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(event.element.qp, a->qp);
    ibv_ack_async_event(&event);
    for (int i = 0; i < room; ++i) EXPECT_DONE(*a, i);  // entries that were written before the overrun can still be polled
    EXPECT_TRUE(a->quiet()) << "a dead CQ takes nothing any more";
    EXPECT_EQ(a->state(), IBV_QPS_ERR) << "and so are its QPs";
}

TEST_F(Cqs, AFullOrEmptyOneCanBeResized) {
    Shape shape;
    shape.cqe = 16;
    connect(shape);
    ASSERT_EQ(ibv_resize_cq(a->cq, 4), 0) << "it is empty";
    const int room = a->cq->cqe;
    EXPECT_GE(room, 4);
    for (int i = 0; i < room; ++i) ASSERT_EQ(a->write(*b, uint64_t(i), 0, 8, 0), 0);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(ibv_resize_cq(a->cq, room), 0) << "as many as are in it";
    ASSERT_EQ(ibv_resize_cq(a->cq, 2 * room), 0);
    for (int i = room; i < 2 * room; ++i) ASSERT_EQ(a->write(*b, uint64_t(i), 0, 8, 0), 0);
    for (int i = 0; i < 2 * room; ++i) EXPECT_DONE(*a, i);
    EXPECT_EQ(ibv_resize_cq(a->cq, 0), EINVAL);
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
    EXPECT_EQ(ibv_resize_cq(a->cq, attr.max_cqe + 1), EINVAL);
}

TEST_F(Cqs, ResizingWhileCompletionsComeLosesNone) {
    constexpr uint64_t kMessages = 600;
    connect();
    std::thread worker([&] {
        for (uint64_t i = 0; i < kMessages; ++i) {
            ASSERT_EQ(a->write(*b, i, 0, 8, 0), 0);
            EXPECT_DONE(*a, i);
        }
    });
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(ibv_resize_cq(a->cq, i % 2 == 0 ? 1000 : 16), 0);
        std::this_thread::sleep_for(2ms);
    }
    worker.join();
}

TEST_F(Cqs, ErrorsCarryWhoFailed) {
    connect();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 77, 0, 64,
                      [&](ibv_send_wr& wr) {
                          wr.wr.rdma = {b->address(), b->mr->rkey ^ 0x55};
                      }),
              0);
    ASSERT_EQ(a->write(*b, 78, 0, 64, 0), 0);
    const ibv_wc first = a->poll(), second = a->poll();
    EXPECT_EQ(first.wr_id, 77u);
    EXPECT_EQ(first.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(first.qp_num, a->qp->qp_num);
    EXPECT_EQ(second.wr_id, 78u);
    EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Cqs, ExtendedPollingShowsTheSame) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* cq = ibv_create_cq_ex(b->context, &attr);
    ASSERT_NE(cq, nullptr);
    b->cq = ibv_cq_ex_to_cq(cq);
    connect();
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(b->receive(2, 0, 64), 0);
    for (uint64_t i = 1; i <= 2; ++i) {
        ASSERT_EQ(
            a->post(IBV_WR_SEND_WITH_IMM, i, 0, uint32_t(i * 10), [&](ibv_send_wr& wr) { wr.imm_data = uint32_t(i + 500); }), 0);
        EXPECT_DONE(*a, i);
    }
    ibv_poll_cq_attr poll{};
    int result = ENOENT;
    for (int i = 0; i < 10000 && result == ENOENT; ++i) {
        result = ibv_start_poll(cq, &poll);
        if (result == ENOENT) std::this_thread::sleep_for(1ms);
    }
    ASSERT_EQ(result, 0);
    uint64_t before = 0;
    for (uint64_t i = 1; i <= 2; ++i) {
        EXPECT_EQ(cq->wr_id, i);
        EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
        EXPECT_EQ(ibv_wc_read_byte_len(cq), i * 10);
        EXPECT_EQ(ibv_wc_read_imm_data(cq), uint32_t(i + 500));
        EXPECT_EQ(ibv_wc_read_qp_num(cq), b->qp->qp_num);
        EXPECT_GE(ibv_wc_read_completion_ts(cq), before);
        before = ibv_wc_read_completion_ts(cq);
        if (i == 1) {
            int next = ENOENT;
            for (int k = 0; k < 10000 && next == ENOENT; ++k) next = ibv_next_poll(cq);
            ASSERT_EQ(next, 0);
        }
    }
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
}

/// The test uses a datagram, because the completion of a datagram has the most fields.
TEST_F(Cqs, EveryFieldThatCanBeAskedForIsThere) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS;
    ibv_cq_ex* cq = ibv_create_cq_ex(b->context, &attr);
    if (cq == nullptr) GTEST_SKIP() << "not all of them";
    b->cq = ibv_cq_ex_to_cq(cq);
    Shape ud;
    ud.type = IBV_QPT_UD;
    connect(ud);
    ibv_ah_attr address = End::address_of(*b);
    ibv_ah* ah = ibv_create_ah(a->pd, &address);
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(b->receive(1, 0, 1024), 0);
    const auto wallclock = [] {
        return uint64_t(std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
    };
    const uint64_t before = wallclock();
    ASSERT_EQ(a->post(IBV_WR_SEND_WITH_IMM, 2, 0, 100,
                      [&](ibv_send_wr& wr) {
                          wr.imm_data = 77;
                          wr.wr.ud = {ah, b->qp->qp_num, kQkey};
                      }),
              0);
    EXPECT_DONE(*a, 2);
    ibv_poll_cq_attr poll{};
    int result = ENOENT;
    for (int i = 0; i < 10000 && (result = ibv_start_poll(cq, &poll)) == ENOENT; ++i) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(result, 0);
    EXPECT_EQ(cq->wr_id, 1u);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 100 + kGrh);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 77u);
    EXPECT_EQ(ibv_wc_read_wc_flags(cq) & (IBV_WC_GRH | IBV_WC_WITH_IMM), unsigned(IBV_WC_GRH | IBV_WC_WITH_IMM));
    EXPECT_EQ(ibv_wc_read_qp_num(cq), b->qp->qp_num);
    EXPECT_EQ(ibv_wc_read_src_qp(cq), a->qp->qp_num);
    EXPECT_EQ(ibv_wc_read_slid(cq), 0u) << "RoCE has no LIDs";
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0u);
    EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0u);
    EXPECT_EQ(ibv_wc_read_cvlan(cq), 0u);
    EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0u);
    EXPECT_NE(ibv_wc_read_completion_ts(cq), 0u);
    const uint64_t stamp = ibv_wc_read_completion_wallclock_ns(cq);
    EXPECT_GE(stamp + 1'000'000, before) << "two clocks: they agree to a millisecond";
    EXPECT_LE(stamp, wallclock() + 1'000'000);
    ibv_wc_read_sl(cq);
    ibv_wc_tm_info info{};
    ibv_wc_read_tm_info(cq, &info);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Cqs, UnknownFlagsAreNotSupported) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = uint64_t{1} << 60;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(b->context, &attr), nullptr);
    EXPECT_TRUE(errno == EOPNOTSUPP || errno == ENOTSUP);
}

/// The moderation of the CQ delays an event until 4 completions have arrived, or for at most 60 ms after the first
/// completion. So a single completion must cause an event after about 60 ms. Four further completions must cause
/// another event.
TEST_F(Cqs, ModerationWaitsForTheCountOrThePeriod) {
    ibv_device_attr_ex dev{};
    ASSERT_EQ(ibv_query_device_ex(b->context, nullptr, &dev), 0);
    if (dev.cq_mod_caps.max_cq_count == 0) GTEST_SKIP() << "no moderation";
    b->channel = ibv_create_comp_channel(b->context);
    connect();
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {4, 60000};
    ASSERT_EQ(ibv_modify_cq(b->cq, &attr), 0);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(a->send(0, 0, 8), 0);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    // There is only one completion, so the event comes at the end of the period.
    ASSERT_EQ(ibv_get_cq_event(b->channel, &cq, &user), 0);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
    ibv_ack_cq_events(cq, 1);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    for (uint64_t i = 1; i < 5; ++i) ASSERT_EQ(a->send(i, 0, 8), 0);
    ASSERT_EQ(ibv_get_cq_event(b->channel, &cq, &user), 0);
    ibv_ack_cq_events(cq, 1);
    for (uint64_t i = 0; i < 5; ++i) EXPECT_DONE(*b, i);
}

}  // namespace
}  // namespace verbs_test
