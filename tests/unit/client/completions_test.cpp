// Tests of polling: the completions of each lane (one engine's part of a CQ), the queue slots that completions free, and the
// effects of a destroyed or reset QP or a resized CQ.
#include <atomic>
#include <set>
#include <thread>

#include "rings_fixture.hpp"

namespace roci::test {
namespace {

TEST_F(Rings, SrqSlotsComeBackByHandle) {
    ibv_srq_init_attr attr{nullptr, {2, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &attr);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(attr.attr.max_sge, 2u);
    uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    EXPECT_EQ(number, 0x50u);
    ibv_qp* user = make_qp(cq, IBV_QPT_RC, IBV_QPS_RTS, srq);
    ibv_recv_wr recv{};
    recv.wr_id = 9;
    EXPECT_EQ(ibv_post_recv(user, &recv, &bad_recv), EINVAL) << "it has no receive queue of its own";
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), ENOMEM);
    EXPECT_EQ(rocid.srq(srq->handle).rq->producer, 2u);
    abi::Cqe e = entry(user, abi::kCqeSrq, 9);
    e.srq_handle = srq->handle;
    rocid.complete(cq->handle, 0, e);
    EXPECT_EQ(poll_one().qp_num, user->qp_num);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    // The call that destroys the QP removes the QP's entry from the CQ and frees the slot of the SRQ.
    rocid.complete(cq->handle, 0, e);
    EXPECT_EQ(ibv_destroy_qp(user), 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), ENOMEM);
    ibv_srq_attr now{};
    EXPECT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.srq_limit, 3u);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Rings, EveryLaneIsPolledInItsOrder) {
    for (uint64_t i = 0; i < 3; ++i) rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 10 + i));
    for (uint64_t i = 0; i < 2; ++i) rocid.complete(cq->handle, 1, entry(qp, abi::kCqeRecv, 20 + i));
    ibv_wc wc[8];
    ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 5);
    std::vector<uint64_t> lane[2];
    for (int i = 0; i < 5; ++i) lane[wc[i].wr_id / 20].push_back(wc[i].wr_id);
    EXPECT_EQ(lane[0], (std::vector<uint64_t>{10, 11, 12}));
    EXPECT_EQ(lane[1], (std::vector<uint64_t>{20, 21}));
    EXPECT_EQ(ibv_poll_cq(cq, 8, wc), 0);
    // The indices wrap around the ring several times. The library must not return an old entry as a new one.
    for (uint64_t i = 0; i < 50; ++i) {
        rocid.complete(cq->handle, i % 2, entry(qp, abi::kCqeRecv, i));
        ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 1);
        ASSERT_EQ(wc[0].wr_id, i);
    }
}

TEST_F(Rings, ACompletionShowsAllItsFields) {
    abi::Cqe e = entry(qp, abi::kCqeRecv, 7);
    e.status = abi::WcStatus::loc_prot_err;
    e.opcode = abi::WcOpcode::recv_rdma_with_imm;
    e.vendor_err = 3;
    e.byte_len = 1000;
    e.imm_or_inv = 0x04030201;
    e.src_qp = 0x99;
    e.wc_flags = abi::kWcWithImm | abi::kWcGrh;
    e.pkey_index = 2;
    e.sl = 5;
    rocid.complete(cq->handle, 0, e);
    const ibv_wc wc = poll_one();
    EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.vendor_err, 3u);
    EXPECT_EQ(wc.byte_len, 1000u);
    EXPECT_EQ(wc.imm_data, 0x04030201u);
    EXPECT_EQ(wc.qp_num, qp->qp_num);
    EXPECT_EQ(wc.src_qp, 0x99u);
    EXPECT_EQ(wc.wc_flags, unsigned(IBV_WC_WITH_IMM | IBV_WC_GRH));
    EXPECT_EQ(wc.pkey_index, 2);
    EXPECT_EQ(wc.sl, 5);
}

TEST_F(Rings, DestroyingAQpTakesItsCompletionsAndNoOthers) {
    ibv_qp* other = make_qp(cq);
    for (uint64_t i = 0; i < 3; ++i) {
        rocid.complete(cq->handle, uint32_t(i % 2), entry(qp, abi::kCqeSend, 10 + i, uint32_t(i)));
        rocid.complete(cq->handle, uint32_t(i % 2), entry(other, abi::kCqeSend, 20 + i, uint32_t(i)));
    }
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    qp = nullptr;
    ibv_wc wc[8];
    ASSERT_EQ(ibv_poll_cq(cq, 8, wc), 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(wc[i].qp_num, other->qp_num);
    EXPECT_EQ(ibv_poll_cq(cq, 8, wc), 0);
    EXPECT_EQ(ibv_destroy_qp(other), 0);
}

TEST_F(Rings, ResetEmptiesTheQueuesAndTheCq) {
    ibv_recv_wr recv{};
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(send_wr(i)), 0);
    ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeSend, 0, 0));
    set_state(qp, IBV_QPS_RESET);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(seen().posted_sends(), 0u);
    EXPECT_EQ(seen().sq->idle, 1u);
    EXPECT_EQ(seen().rq->producer, 0u);
    set_state(qp, IBV_QPS_RTS);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(post(send_wr(50 + i)), 0);
    EXPECT_EQ(post(send_wr(54)), ENOMEM);
    EXPECT_EQ(wqe(0).wr_id, 50u);
}

TEST_F(Rings, ResizeKeepsWhatWasNotPolled) {
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 1));
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 2));
    rocid.complete(cq->handle, 1, entry(qp, abi::kCqeRecv, 3));
    EXPECT_EQ(poll_one().wr_id, 1u);
    ibv_req_notify_cq(cq, 1);
    ASSERT_EQ(ibv_resize_cq(cq, 20), 0);
    EXPECT_EQ(cq->cqe, 32);
    EXPECT_EQ(rocid.last_as<abi::ResizeCqRequest>(abi::Op::resize_cq).consumer[0], 1u);
    EXPECT_EQ(rocid.cq(cq->handle).shared->arm, 3u) << "armed before, armed after";
    ibv_wc wc[4];
    ASSERT_EQ(ibv_poll_cq(cq, 4, wc), 2);
    EXPECT_EQ(wc[0].wr_id + wc[1].wr_id, 5u);
    rocid.complete(cq->handle, 0, entry(qp, abi::kCqeRecv, 9));
    EXPECT_EQ(poll_one().wr_id, 9u);
    rocid.refuse(abi::Op::resize_cq, EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 1), EINVAL);
    EXPECT_EQ(cq->cqe, 32);
}

// Two threads post and one thread polls, while an engine completes all requests. Every request must complete exactly
// once.
TEST_F(Rings, ThreadsPostAndPollAtOnce) {
    constexpr uint64_t kEach = 20000;
    FakeRocid::Qp& queue = seen();
    std::atomic<bool> stop{false};
    std::thread engine([&] {
        uint32_t consumed = 0;
        while (!stop) {
            for (; queue.posted(consumed); ++consumed)
                rocid.complete(cq->handle, 1, entry(qp, abi::kCqeSend, wqe(consumed).wr_id, consumed));
            std::this_thread::yield();
        }
    });
    const auto poster = [&](uint64_t base) {
        for (uint64_t i = 0; i < kEach;) {
            ibv_send_wr wr = send_wr(base + i);
            ibv_send_wr* first_bad = nullptr;
            const int err = ibv_post_send(qp, &wr, &first_bad);
            if (err == 0)
                ++i;
            else if (err == ENOMEM)
                std::this_thread::yield();
            else
                FAIL() << err;
        }
    };
    std::thread a(poster, 0), b(poster, kEach);
    std::vector<int> completed(2 * kEach);
    uint64_t total = 0, last[2] = {0, 0};
    bool in_order = true;
    while (total < 2 * kEach) {
        ibv_wc wc[4];
        const int n = ibv_poll_cq(cq, 4, wc);
        for (int i = 0; i < n; ++i) {
            ++completed[wc[i].wr_id];
            uint64_t& previous = last[wc[i].wr_id / kEach];
            in_order = in_order && wc[i].wr_id >= previous;
            previous = wc[i].wr_id;
        }
        total += uint64_t(n);
        if (n == 0) std::this_thread::yield();
    }
    a.join();
    b.join();
    stop = true;
    engine.join();
    EXPECT_TRUE(in_order);
    EXPECT_EQ(std::set<int>(completed.begin(), completed.end()), std::set<int>{1});
}

}  // namespace
}  // namespace roci::test
