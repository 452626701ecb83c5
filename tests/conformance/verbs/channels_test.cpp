// Tests of completion channels: arming, solicited events, several CQs per channel, non-blocking descriptors, and
// acknowledgement. No wake-up may be lost.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Channels : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        b->channel = ibv_create_comp_channel(b->context);
        ASSERT_NE(b->channel, nullptr);
        connect();
    }
    bool readable(int milliseconds) {
        pollfd p{b->channel->fd, POLLIN, 0};
        return ::poll(&p, 1, milliseconds) == 1;
    }
    void take_event() {
        ibv_cq* cq = nullptr;
        void* user = nullptr;
        ASSERT_EQ(ibv_get_cq_event(b->channel, &cq, &user), 0);
        EXPECT_EQ(cq, b->cq);
        EXPECT_EQ(user, b.get());
        ibv_ack_cq_events(cq, 1);
    }
};

TEST_F(Channels, AnEventComesOnceForEachArming) {
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ASSERT_EQ(a->send(0, 0, 8), 0);
    EXPECT_DONE(*b, 0);
    EXPECT_FALSE(readable(30)) << "not armed";
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    EXPECT_FALSE(readable(30)) << "an old completion is no reason";
    ASSERT_EQ(a->send(1, 0, 8), 0);
    ASSERT_TRUE(readable(5000));
    take_event();
    ASSERT_EQ(a->send(2, 0, 8), 0);
    EXPECT_FALSE(readable(30));
}

TEST_F(Channels, SolicitedOnlyWaitsForASolicitedMessage) {
    for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(a->send(0, 0, 8), 0);
    EXPECT_FALSE(readable(50));
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, 0, 8, [](ibv_send_wr& wr) { wr.send_flags |= IBV_SEND_SOLICITED; }), 0);
    ASSERT_TRUE(readable(5000));
    take_event();
}

// A program arms a CQ for the next completion, and then for solicited completions only. The CQ must stay armed for the
// next completion (IBA 11.4.2.2).
TEST_F(Channels, SolicitedOnlyTakesNothingBack) {
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(a->send(0, 0, 8), 0);
    ASSERT_TRUE(readable(5000)) << "any completion was asked for first";
    take_event();
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(a->send(1, 0, 8), 0);
    EXPECT_FALSE(readable(50)) << "that request was answered";
}

TEST_F(Channels, SolicitedOnlyHearsOfErrors) {
    ASSERT_EQ(b->receive(0, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(b->to_state(IBV_QPS_ERR), 0);
    ASSERT_TRUE(readable(5000));
    take_event();
}

TEST_F(Channels, NonBlockingMeansNonBlocking) {
    fcntl(b->channel->fd, F_SETFL, fcntl(b->channel->fd, F_GETFL) | O_NONBLOCK);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    errno = 0;
    EXPECT_EQ(ibv_get_cq_event(b->channel, &cq, &user), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Channels, EpollSeesThem) {
    const int epoll = epoll_create1(0);
    epoll_event want{};
    want.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, b->channel->fd, &want), 0);
    epoll_event got{};
    ASSERT_EQ(b->receive(0, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    EXPECT_EQ(epoll_wait(epoll, &got, 1, 20), 0);
    ASSERT_EQ(a->send(0, 0, 8), 0);
    EXPECT_EQ(epoll_wait(epoll, &got, 1, 5000), 1);
    take_event();
    EXPECT_EQ(epoll_wait(epoll, &got, 1, 20), 0);
    close(epoll);
}

TEST_F(Channels, EveryVectorDelivers) {
    ASSERT_GE(b->context->num_comp_vectors, 1);
    for (int vector = 0; vector < b->context->num_comp_vectors; ++vector) {
        End end(1), peer(0);
        end.channel = ibv_create_comp_channel(end.context);
        end.cq = ibv_create_cq(end.context, 16, nullptr, end.channel, vector);
        ASSERT_NE(end.cq, nullptr);
        ASSERT_NE(end.create(), nullptr);
        ASSERT_NE(peer.create(), nullptr);
        for (End* e : {&end, &peer}) ASSERT_EQ(e->to_init(), 0);
        ASSERT_EQ(end.to_rtr(peer, peer.qp->qp_num, 1), 0);
        ASSERT_EQ(peer.to_rtr(end, end.qp->qp_num, 2), 0);
        ASSERT_EQ(end.to_rts(2), 0);
        ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
        ASSERT_EQ(end.write(peer, 7, 0, 8, 0), 0);
        pollfd p{end.channel->fd, POLLIN, 0};
        ASSERT_EQ(::poll(&p, 1, 5000), 1) << "vector " << vector;
        ibv_cq* cq = nullptr;
        void* user = nullptr;
        ASSERT_EQ(ibv_get_cq_event(end.channel, &cq, &user), 0);
        EXPECT_EQ(cq, end.cq);
        ibv_ack_cq_events(cq, 1);
        EXPECT_DONE(end, 7);
    }
}

TEST_F(Channels, ABusyChannelStays) { EXPECT_EQ(ibv_destroy_comp_channel(b->channel), EBUSY); }

TEST_F(Channels, SeveralCqsOfDifferentVectorsShareOne) {
    ibv_cq* other = ibv_create_cq(b->context, 16, nullptr, b->channel, b->context->num_comp_vectors - 1);
    ASSERT_NE(other, nullptr);
    End* const c = b.get();
    ASSERT_EQ(ibv_req_notify_cq(other, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(c->cq, 0), 0);
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(a->send(1, 0, 8), 0);
    take_event();
    EXPECT_FALSE(readable(20));
    EXPECT_EQ(ibv_destroy_cq(other), 0);
}

TEST_F(Channels, DestroyWaitsForAcknowledgements) {
    ibv_cq* cq = ibv_create_cq(b->context, 16, nullptr, b->channel, 0);
    ASSERT_EQ(ibv_destroy_qp(b->qp), 0);
    b->qp = nullptr;
    ibv_cq* old = b->cq;
    b->cq = cq;
    ASSERT_EQ(ibv_destroy_cq(old), 0);
    ASSERT_NE(b->create(), nullptr);
    ASSERT_EQ(a->to_state(IBV_QPS_RESET), 0);
    raise();
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ASSERT_EQ(a->send(1, 0, 8), 0);
    ibv_cq* got = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(b->channel, &got, &user), 0);
    ASSERT_EQ(ibv_destroy_qp(b->qp), 0);
    b->qp = nullptr;
    b->cq = nullptr;
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&] {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        destroyed = true;
    });
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(destroyed);
    ibv_ack_cq_events(cq, 1);
    destroyer.join();
    EXPECT_TRUE(destroyed);
}

/// The receiver arms the CQ, polls until the CQ is empty, and then waits. A completion that arrives after the arming
/// must end the wait.
TEST_F(Channels, NoWakeUpIsLost) {
    constexpr uint64_t kMessages = 2000;
    for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    std::thread sender([&] {
        for (uint64_t i = 0; i < kMessages; ++i) {
            ASSERT_EQ(a->send(i, 0, 8), 0);
            for (int k = i % 16 == 15 ? 16 : 0; k > 0; --k) EXPECT_EQ(a->poll().status, IBV_WC_SUCCESS);
        }
    });
    uint64_t seen = 0;
    while (seen < kMessages) {
        ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
        ibv_wc wc{};
        int n = 0;
        bool any = false;
        while ((n = ibv_poll_cq(b->cq, 1, &wc)) == 1) {
            any = true;
            ++seen;
            ASSERT_EQ(b->receive(seen, 0, 64), 0);
        }
        if (any || seen == kMessages) continue;
        ASSERT_TRUE(readable(20000)) << "after " << seen;
        take_event();
    }
    sender.join();
    while (readable(10)) take_event();
}

}  // namespace
}  // namespace verbs_test
