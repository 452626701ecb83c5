// Tests of several threads that call verbs on the same objects at the same time.
#include <fcntl.h>
#include <poll.h>

#include <atomic>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Threads : public Pair {};

TEST_F(Threads, ShareAQpAndACq) {
    constexpr int kThreads = 4;
    constexpr uint64_t kEach = 500;
    Shape deep;
    deep.send_wr = 256;
    deep.cqe = 1024;
    connect(deep);
    std::atomic<uint64_t> completed{0}, posted{0};
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            uint64_t mine = 0;
            while (mine < kEach || completed < kThreads * kEach) {
                if (mine < kEach) {
                    const int err = a->write(*b, mine, 0, 32, 0);
                    if (err == 0) {
                        ++mine;
                        ++posted;
                    } else if (err != ENOMEM) {
                        ++failures;
                    }
                }
                ibv_wc wc[8];
                const int n = ibv_poll_cq(a->cq, 8, wc);
                for (int i = 0; i < n; ++i) failures += wc[i].status != IBV_WC_SUCCESS;
                if (n > 0) completed += uint64_t(n);
                if (n < 0 || failures > 10) return;
                if (n == 0) std::this_thread::yield();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(completed, kThreads * kEach);
}

/// Several threads arm and poll the same CQ, wait on its channel, and post receives to the same QP. Another thread
/// sends to this QP.
TEST_F(Threads, ShareAChannelToo) {
    constexpr int kThreads = 4;
    constexpr uint64_t kMessages = 300;
    b->channel = ibv_create_comp_channel(b->context);
    ASSERT_NE(b->channel, nullptr);
    connect();
    fcntl(b->channel->fd, F_SETFL, fcntl(b->channel->fd, F_GETFL) | O_NONBLOCK);
    for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(b->receive(i, 0, 64), 0);
    std::atomic<uint64_t> received{0};
    std::atomic<int> failures{0};
    const auto receive = [&] {
        while (received < kMessages && failures == 0) {
            failures += ibv_req_notify_cq(b->cq, 0) != 0;
            ibv_wc wc{};
            while (ibv_poll_cq(b->cq, 1, &wc) == 1) {
                failures += wc.status != IBV_WC_SUCCESS;
                ++received;
                failures += b->receive(1, 0, 64) != 0;
            }
            pollfd p{b->channel->fd, POLLIN, 0};
            if (poll(&p, 1, 50) != 1) continue;
            ibv_cq* cq = nullptr;
            void* user = nullptr;
            if (ibv_get_cq_event(b->channel, &cq, &user) == 0) ibv_ack_cq_events(cq, 1);
        }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(receive);
    for (uint64_t i = 0; i < kMessages && failures == 0; ++i) {
        EXPECT_EQ(a->send(i, 0, 8), 0);
        EXPECT_DONE(*a, i);
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(received, kMessages);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    while (ibv_get_cq_event(b->channel, &cq, &user) == 0) ibv_ack_cq_events(cq, 1);
}

TEST_F(Threads, CreateAndDestroyAtOnce) {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 20; ++i) {
                ibv_pd* pd = ibv_alloc_pd(a->context);
                ibv_cq* cq = ibv_create_cq(a->context, 16, nullptr, nullptr, 0);
                std::vector<uint8_t> memory(8192);
                ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), kFullAccess);
                ibv_qp_init_attr attr{};
                attr.send_cq = attr.recv_cq = cq;
                attr.qp_type = IBV_QPT_RC;
                attr.cap = {4, 4, 1, 1, 0};
                ibv_qp* qp = ibv_create_qp(pd, &attr);
                failures += pd == nullptr || cq == nullptr || mr == nullptr || qp == nullptr;
                if (failures != 0) return;
                failures +=
                    ibv_destroy_qp(qp) != 0 || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failures, 0);
}

TEST_F(Threads, AParentDomainServesLikeItsPd) {
    ibv_td_init_attr td_attr{};
    ibv_td* td = ibv_alloc_td(a->context, &td_attr);
    if (td == nullptr) GTEST_SKIP() << "no thread domains";
    ibv_parent_domain_init_attr attr{};
    attr.pd = a->pd;
    attr.td = td;
    ibv_pd* parent = ibv_alloc_parent_domain(a->context, &attr);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
    std::swap(parent, a->pd);
    connect();
    ASSERT_EQ(a->write(*b, 1, 0, 32, 0), 0);  // the memory was registered with the PD that the parent domain contains
    EXPECT_DONE(*a, 1);
    EXPECT_EQ(ibv_destroy_qp(a->qp), 0);
    a->qp = nullptr;
    std::swap(parent, a->pd);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
}

}  // namespace
}  // namespace verbs_test
