// Tests of asynchronous events: the element in each event, the acknowledgement, and the end of rocid.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class AsyncEvents : public Pair {
protected:
    void expect(End& end, ibv_event_type type) {
        ibv_async_event event{};
        ASSERT_EQ(ibv_get_async_event(end.context, &event), 0);
        EXPECT_EQ(event.event_type, type) << ibv_event_type_str(event.event_type);
        EXPECT_EQ(event.element.qp, end.qp);
        ibv_ack_async_event(&event);
    }
};

TEST_F(AsyncEvents, NonBlockingReadsSayEagain) {
    fcntl(a->context->async_fd, F_SETFL, fcntl(a->context->async_fd, F_GETFL) | O_NONBLOCK);
    ibv_async_event event{};
    errno = 0;
    EXPECT_EQ(ibv_get_async_event(a->context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AsyncEvents, CommunicationIsEstablishedByTheFirstMessage) {
    ASSERT_NE(a->create(), nullptr);
    ASSERT_NE(b->create(), nullptr);
    ASSERT_EQ(a->to_init(), 0);
    ASSERT_EQ(b->to_init(), 0);
    ASSERT_EQ(a->to_rtr(*b, b->qp->qp_num, 200), 0);
    ASSERT_EQ(b->to_rtr(*a, a->qp->qp_num, 100), 0);
    ASSERT_EQ(a->to_rts(100), 0);
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(a->send(2, 0, 8), 0);
    EXPECT_DONE(*b, 1);
    expect(*b, IBV_EVENT_COMM_EST);
}

TEST_F(AsyncEvents, ARemoteAccessErrorIsToldToTheResponder) {
    connect();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 8, [&](ibv_send_wr& wr) { wr.wr.rdma = {b->address(), b->mr->rkey ^ 0x33}; }), 0);
    expect(*b, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(AsyncEvents, AnInvalidRequestIsToldToTheResponder) {
    connect();
    ASSERT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8,
                      [&](ibv_send_wr& wr) {
                          wr.wr.atomic = {b->address(3), 1, 0, b->mr->rkey};
                      }),
              0);
    expect(*b, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(AsyncEvents, DestroyWaitsForTheAcknowledgement) {
    connect();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 8, [&](ibv_send_wr& wr) { wr.wr.rdma = {b->address(), b->mr->rkey ^ 0x33}; }), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(b->context, &event), 0);
    std::atomic<bool> gone{false};
    ibv_qp* qp = b->qp;
    b->qp = nullptr;
    std::thread destroyer([&] {
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        gone = true;
    });
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(gone);
    ibv_ack_async_event(&event);
    destroyer.join();
}

/// Starts a separate rocid and kills it. ROCI_ROCID is the path of the program rocid.
TEST(Fatal, TheEndOfRocidIsADeviceFatalEventAndErrorsNotAHang) {
    const char* rocid = std::getenv("ROCI_ROCID");
    if (rocid == nullptr) GTEST_SKIP() << "ROCI_ROCID is not set";
    const std::string socket = std::string(std::getenv("ROCI_SOCKET")) + ".fatal";
    const pid_t pid = fork();
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execl(rocid, rocid, "--loopback", "--socket", socket.c_str(), nullptr);
        _exit(127);
    }
    for (int i = 0; i < 200 && access(socket.c_str(), F_OK) != 0; ++i) std::this_thread::sleep_for(50ms);
    const std::string before = std::getenv("ROCI_SOCKET");
    setenv("ROCI_SOCKET", socket.c_str(), 1);
    {
        auto end = std::make_unique<End>(0);
        ASSERT_NE(end->context, nullptr);
        end->channel = ibv_create_comp_channel(end->context);
        ASSERT_NE(end->create(), nullptr);
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        ibv_async_event event{};
        ASSERT_EQ(ibv_get_async_event(end->context, &event), 0);
        EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
        ibv_ack_async_event(&event);
        ibv_cq* cq = nullptr;
        void* user = nullptr;
        EXPECT_EQ(ibv_get_cq_event(end->channel, &cq, &user), -1);
        ibv_device_attr attr{};
        EXPECT_NE(ibv_query_device(end->context, &attr), 0);
        EXPECT_EQ(ibv_alloc_pd(end->context), nullptr);
        EXPECT_NE(end->to_init(), 0);
    }  // at the end of this block, the destructor of `end` must destroy the objects without an error
    setenv("ROCI_SOCKET", before.c_str(), 1);
    unlink(socket.c_str());
}

}  // namespace
}  // namespace verbs_test
