// Tests of completion channels and asynchronous events: the records in event sockets, acknowledgements, and events of
// destroyed objects.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "fixture.hpp"

namespace roci::test {
namespace {

/// A thread that makes one call.
class OtherThread {
public:
    explicit OtherThread(std::function<void()> call)
        : thread_([this, call = std::move(call)] {
              id_ = int(gettid());
              call();
              returned_ = true;
          }) {}
    ~OtherThread() { thread_.join(); }
    /// Returns true as soon as the call sleeps on this condition variable. Returns false if the call returns without
    /// such a sleep, or after a minute.
    bool sleeps_on(const pthread_cond_t& cond) const {
        const auto begin = reinterpret_cast<uintptr_t>(&cond);
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (!returned_ && std::chrono::steady_clock::now() < end) {
            const uintptr_t word = futex();
            if (word >= begin && word < begin + sizeof cond) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    }
    bool returned() const { return returned_; }

private:
    /// Returns the address of the futex on which the thread sleeps, or 0.
    uintptr_t futex() const {
        std::FILE* file = std::fopen(("/proc/self/task/" + std::to_string(id_) + "/syscall").c_str(), "re");
        if (file == nullptr) return 0;
        long call = -1;
        unsigned long first = 0;
        const int fields = std::fscanf(file, "%ld %lx", &call, &first);
        std::fclose(file);
        return fields == 2 && call == SYS_futex ? first : 0;
    }
    std::atomic<int> id_{0};
    std::atomic<bool> returned_{false};
    std::thread thread_;
};

class Events : public Client {
protected:
    abi::CompEventRecord record_of(ibv_cq* cq) { return {cq->handle, rocid.cq(cq->handle).reply.generation}; }
    static bool readable(int fd) {
        pollfd p{fd, POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }
    static void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }
};

TEST_F(Events, CompletionEventNamesTheCqAndItsContext) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(fcntl(channel->fd, F_GETFL) & O_NONBLOCK, 0) << "blocking is the default";
    ibv_cq* cq = make_cq(8, channel);
    EXPECT_EQ(channel->refcnt, 1);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    EXPECT_FALSE(readable(channel->fd));
    rocid.send_comp_event(record_of(cq));
    EXPECT_TRUE(readable(channel->fd));
    ibv_cq* which = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &which, &user), 0);
    EXPECT_EQ(which, cq);
    EXPECT_EQ(user, this);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Events, NonBlockingReadsFailWithEagain) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    set_nonblocking(channel->fd);
    ibv_cq* which = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel, &which, &user), -1);
    EXPECT_EQ(errno, EAGAIN);
    set_nonblocking(context->async_fd);
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Events, RecordsOfDestroyedCqsAreSkipped) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* old = make_cq(8, channel);
    const abi::CompEventRecord stale = record_of(old);
    ASSERT_EQ(ibv_destroy_cq(old), 0);
    ibv_cq* cq = make_cq(8, channel);
    rocid.send_comp_event(stale);
    // A record with the handle of this CQ, but with an earlier generation.
    rocid.send_comp_event({cq->handle, record_of(cq).generation - 1});
    rocid.send_comp_event(record_of(cq));
    ibv_cq* which = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &which, &user), 0);
    EXPECT_EQ(which, cq);
    set_nonblocking(channel->fd);
    rocid.send_comp_event(stale);
    EXPECT_EQ(ibv_get_cq_event(channel, &which, &user), -1) << "only the stale record was there";
    EXPECT_EQ(errno, EAGAIN);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Events, DestroyCqWaitsForEveryAcknowledgement) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = make_cq(8, channel);
    ibv_cq* which = nullptr;
    void* user = nullptr;
    for (int i = 0; i < 3; ++i) {
        rocid.send_comp_event(record_of(cq));
        ASSERT_EQ(ibv_get_cq_event(channel, &which, &user), 0);
    }
    ibv_ack_cq_events(cq, 2);
    {
        const OtherThread destroyer([cq] { EXPECT_EQ(ibv_destroy_cq(cq), 0); });
        EXPECT_TRUE(destroyer.sleeps_on(cq->cond)) << "one event is not acknowledged";
        if (!destroyer.returned()) ibv_ack_cq_events(cq, 1);
    }
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Events, AsyncEventsNameTheirObjects) {
    ibv_cq* cq = make_cq();
    ibv_qp* qp = make_qp(cq);
    ibv_srq_init_attr attr{nullptr, {4, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &attr);
    const auto send = [&](ibv_event_type type, uint32_t handle, uint32_t generation) {
        rocid.send_async_event({uint32_t(type), handle, generation, 0});
    };
    const auto receive = [&] {
        ibv_async_event e{};
        EXPECT_EQ(ibv_get_async_event(context, &e), 0);
        ibv_ack_async_event(&e);
        return e;
    };
    send(IBV_EVENT_QP_LAST_WQE_REACHED, qp->handle, rocid.qp(qp->handle).reply.generation);
    send(IBV_EVENT_CQ_ERR, cq->handle, rocid.cq(cq->handle).reply.generation);
    send(IBV_EVENT_SRQ_LIMIT_REACHED, srq->handle, rocid.srq(srq->handle).reply.generation);
    send(IBV_EVENT_QP_FATAL, 9999, 1);  // no QP has the number 9999
    send(IBV_EVENT_PORT_ACTIVE, 1, 0);
    EXPECT_EQ(receive().element.qp, qp);
    EXPECT_EQ(receive().element.cq, cq);
    const ibv_async_event srq_event = receive();
    EXPECT_EQ(srq_event.element.srq, srq);
    EXPECT_EQ(srq_event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    const ibv_async_event port = receive();
    EXPECT_EQ(port.event_type, IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(port.element.port_num, 1);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Events, DestroyQpWaitsForItsEvents) {
    ibv_cq* cq = make_cq();
    ibv_qp* qp = make_qp(cq);
    rocid.send_async_event({IBV_EVENT_COMM_EST, qp->handle, rocid.qp(qp->handle).reply.generation, 0});
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    {
        const OtherThread destroyer([qp] { EXPECT_EQ(ibv_destroy_qp(qp), 0); });
        EXPECT_TRUE(destroyer.sleeps_on(qp->cond));
        if (!destroyer.returned()) ibv_ack_async_event(&event);
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Events, ArmingCountsUpAndSaysSolicited) {
    ibv_cq* cq = make_cq();
    abi::CqShared* shared = rocid.cq(cq->handle).shared;
    EXPECT_EQ(shared->arm, 0u);
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    EXPECT_EQ(shared->arm, 2u);
    shared->fired = 2;  // rocid stores in `fired` the value of `arm` for which it has sent the event
    EXPECT_EQ(ibv_req_notify_cq(cq, 1), 0);
    EXPECT_EQ(shared->arm, 5u);
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    EXPECT_EQ(shared->arm, 6u);
    EXPECT_EQ(ibv_req_notify_cq(cq, 1), 0);
    EXPECT_EQ(shared->arm, 8u) << "not narrowed: any entry is still awaited";
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

}  // namespace
}  // namespace roci::test
