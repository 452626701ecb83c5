// Tests of the locks of queues. A lock must exclude other threads. It must be disabled if the program has declared
// that only one thread at a time uses the object (thread domains, IBV_CREATE_CQ_ATTR_SINGLE_THREADED).
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "fixture.hpp"
#include "spinlock.hpp"

namespace {
thread_local std::atomic<int>* yields = nullptr;
}

/// Replaces the C library's sched_yield(), also for calls from libibverbs. A thread that waits for a Spinlock calls
/// sched_yield() after a number of spins.
extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
    if (yields != nullptr) ++*yields;
    return int(syscall(SYS_sched_yield));
}

namespace roci::test {
namespace {

/// A thread that makes one call.
class OtherThread {
public:
    explicit OtherThread(std::function<void()> call)
        : thread_([this, call = std::move(call)] {
              yields = &yields_;
              call();
              yields = nullptr;
              returned_ = true;
          }) {}
    ~OtherThread() { thread_.join(); }
    /// Returns true if the call returns, and false if the call waits for a lock. Ten yields count as a wait, because a poll of an
    /// empty CQ may yield once.
    bool gets_in() const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (!returned_ && yields_ < 10) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (std::chrono::steady_clock::now() > end) return ADD_FAILURE() << "the call neither returns nor waits", false;
        }
        return returned_;
    }

private:
    std::atomic<int> yields_{0};
    std::atomic<bool> returned_{false};
    std::thread thread_;
};

TEST(Spinlock, KeepsOthersOutUnlessElided) {
    client::Spinlock lock;
    lock.lock();
    {
        const OtherThread other([&] { lock.lock(); });
        EXPECT_FALSE(other.gets_in());
        lock.unlock();
    }
    client::Spinlock elided;
    elided.elide();
    elided.lock();
    elided.lock();
    elided.unlock();
}

class Locks : public Client {
protected:
    void SetUp() override {
        Client::SetUp();
        ibv_td_init_attr none{};
        td = ibv_alloc_td(context, &none);
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd;
        attr.td = td;
        one_thread = ibv_alloc_parent_domain(context, &attr);
        attr.td = nullptr;
        any_thread = ibv_alloc_parent_domain(context, &attr);
        ASSERT_NE(one_thread, nullptr);
        ASSERT_NE(any_thread, nullptr);
        cq = make_cq();
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dealloc_pd(one_thread), 0);
        EXPECT_EQ(ibv_dealloc_pd(any_thread), 0);
        EXPECT_EQ(ibv_dealloc_td(td), 0);
        Client::TearDown();
    }
    ibv_qp* make_extended(ibv_pd* domain) {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {4, 4, 1, 1, 0};
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        attr.pd = domain;
        ibv_qp* qp = ibv_create_qp_ex(context, &attr);
        if (qp != nullptr) set_state(qp, IBV_QPS_RTS);
        return qp;
    }
    /// Returns true if another thread can call ibv_wr_start between ibv_wr_start and ibv_wr_abort of this thread. The two calls
    /// lock and unlock the send queue.
    static bool lets_others_in(ibv_qp* qp) {
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
        ibv_wr_start(ex);
        const OtherThread other([ex] {
            ibv_wr_start(ex);
            ibv_wr_abort(ex);
        });
        const bool in = other.gets_in();
        ibv_wr_abort(ex);
        return in;
    }
    /// Returns true if another thread can poll the CQ between ibv_start_poll and ibv_end_poll of this thread. The two calls lock
    /// and unlock the CQ.
    bool lets_others_in(ibv_cq_init_attr_ex attr) {
        attr.cqe = 8;
        ibv_cq_ex* ex = ibv_create_cq_ex(context, &attr);
        if (ex == nullptr) return ADD_FAILURE() << "no CQ", false;
        ibv_qp* qp = make_qp(cq);
        rocid.complete(ibv_cq_ex_to_cq(ex)->handle, 0, entry(qp, abi::kCqeSend, 1));
        ibv_poll_cq_attr none{};
        EXPECT_EQ(ibv_start_poll(ex, &none), 0);
        bool in = false;
        int polled = -1;
        {
            const OtherThread other([&] {
                ibv_wc wc{};
                polled = ibv_poll_cq(ibv_cq_ex_to_cq(ex), 1, &wc);
            });
            in = other.gets_in();
            ibv_end_poll(ex);
        }
        EXPECT_EQ(polled, 0);
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
        return in;
    }
    ibv_td* td = nullptr;
    ibv_pd* one_thread = nullptr;
    ibv_pd* any_thread = nullptr;
    ibv_cq* cq = nullptr;
};

TEST_F(Locks, AQpOfAThreadDomainHasNone) {
    for (ibv_pd* domain : {pd, any_thread, one_thread}) {
        ibv_qp* qp = make_extended(domain);
        ASSERT_NE(qp, nullptr);
        EXPECT_EQ(lets_others_in(qp), domain == one_thread);
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
}

TEST_F(Locks, ACqOfAThreadDomainHasNone) {
    ibv_cq_init_attr_ex attr{};
    EXPECT_FALSE(lets_others_in(attr));
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = any_thread;
    EXPECT_FALSE(lets_others_in(attr));
    attr.parent_domain = one_thread;
    EXPECT_TRUE(lets_others_in(attr));
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    EXPECT_TRUE(lets_others_in(attr));
}

TEST_F(Locks, ACqTakesParentDomainsOnly) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = pd;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Locks, AnSrqOfAThreadDomainIsPostedToAsEver) {
    ibv_srq_init_attr attr{};
    attr.attr = {4, 1, 0};
    ibv_srq* srq = ibv_create_srq(one_thread, &attr);
    ASSERT_NE(srq, nullptr);
    ibv_recv_wr wr{}, *bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace roci::test
