// rocid ends while requests are outstanding. Every call that waits must return.
#include <chrono>
#include <thread>

#include "fixture.hpp"

namespace roci::test {
namespace {

class EndOfRocid : public Client {
protected:
    /// Polls the CQ until it has an entry, for at most 20 seconds. The thread makes no other call.
    static ibv_wc poll_for_one(ibv_cq* cq) {
        ibv_wc wc{};
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (ibv_poll_cq(cq, 1, &wc) == 0 && std::chrono::steady_clock::now() < end) {
        }
        return wc;
    }
    void expect_flushed(ibv_cq* cq, std::vector<uint64_t> ids, uint32_t qpn) {
        for (const uint64_t id : ids) {
            const ibv_wc wc = poll_for_one(cq);
            EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
            EXPECT_EQ(wc.wr_id, id);
            EXPECT_EQ(wc.qp_num, qpn);
        }
        ibv_wc more{};
        EXPECT_EQ(ibv_poll_cq(cq, 1, &more), 0);
    }
    void post_receive(ibv_qp* qp, uint64_t id) {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
    void post(ibv_qp* qp, uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
        ibv_send_wr wr = send_wr(id), *bad = nullptr;
        wr.send_flags = flags;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    }
};

TEST_F(EndOfRocid, ABarePollLoopGetsEverythingFlushed) {
    ibv_cq *sends = make_cq(), *receives = make_cq();
    ibv_qp_init_attr a = qp_attr(sends);
    a.recv_cq = receives;
    ibv_qp* qp = ibv_create_qp(pd, &a);
    set_state(qp, IBV_QPS_RTS);
    post(qp, 1);
    post(qp, 2, 0);
    post(qp, 3, 0);
    post_receive(qp, 11);
    post_receive(qp, 12);
    rocid.complete(sends->handle, 0, entry(qp, abi::kCqeSend, 1, 0));
    testing::internal::CaptureStderr();
    rocid.die();

    const ibv_wc done = poll_for_one(sends);
    EXPECT_EQ(done.status, IBV_WC_SUCCESS) << "what was completed is not taken back";
    EXPECT_EQ(done.wr_id, 1u);
    expect_flushed(sends, {2, 3}, qp->qp_num);
    expect_flushed(receives, {11, 12}, qp->qp_num);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("connection to rocid at "), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;

    ibv_send_wr send = send_wr(4), *bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad), EIO);
    EXPECT_EQ(bad, &send);
    ibv_recv_wr receive{}, *bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EIO);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(sends), 0);
    EXPECT_EQ(ibv_destroy_cq(receives), 0);
}

TEST_F(EndOfRocid, ReceivesOfAnSrqAreFlushedByOneOfItsQps) {
    ibv_cq* cq = make_cq();
    ibv_srq_init_attr attr{nullptr, {4, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &attr);
    ibv_qp* qp = make_qp(cq, IBV_QPT_RC, IBV_QPS_RTS, srq);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = 7;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    rocid.die();
    expect_flushed(cq, {7}, qp->qp_num);
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), EIO);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(EndOfRocid, WhoeverSleepsInAChannelWakesAndFindsItFlushed) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = make_cq(8, channel);
    ibv_qp* qp = make_qp(cq);
    post(qp, 1);
    std::thread sleeper([&] {
        ibv_cq* which = nullptr;
        void* user = nullptr;
        EXPECT_EQ(ibv_get_cq_event(channel, &which, &user), -1);
        EXPECT_EQ(errno, EIO);
    });
    rocid.die();
    sleeper.join();
    ibv_wc wc{};
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1) << "at once: the channel has noticed";
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(EndOfRocid, AnExtendedPollLoopToo) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    ibv_cq_ex* cq = ibv_create_cq_ex(context, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp* qp = make_qp(ibv_cq_ex_to_cq(cq));
    post(qp, 5);
    rocid.die();
    ibv_poll_cq_attr none{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int err = ENOENT;
    while (err == ENOENT && std::chrono::steady_clock::now() < end) err = ibv_start_poll(cq, &none);
    ASSERT_EQ(err, 0);
    EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(cq->wr_id, 5u);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace roci::test
