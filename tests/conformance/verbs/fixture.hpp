// Two ends of a connection for conformance tests. This file uses only the public verbs API, so the tests also run
// with other providers. ROCI_DEV1 and ROCI_DEV2 are the names of the devices. If they are not set, the ends use the
// first two devices, or one device if there is only one. ROCI_GID is the GID index. Its default is 1.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace verbs_test {

using namespace std::chrono_literals;

inline uint8_t gid_index() {
    const char* text = std::getenv("ROCI_GID");
    return uint8_t(text != nullptr ? std::atoi(text) : 1);
}

/// Opens the first device if `which` is 0, and the second device if `which` is 1.
inline ibv_context* open_device(int which) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) return nullptr;
    const char* wanted = std::getenv(which == 0 ? "ROCI_DEV1" : "ROCI_DEV2");
    ibv_device* device = wanted == nullptr ? list[count > 1 ? which : 0] : nullptr;
    for (int i = 0; wanted != nullptr && i < count; ++i)
        if (std::string(ibv_get_device_name(list[i])) == wanted) device = list[i];
    ibv_context* context = device != nullptr ? ibv_open_device(device) : nullptr;
    ibv_free_device_list(list);
    return context;
}

struct Shape {
    ibv_qp_type type = IBV_QPT_RC;
    uint32_t send_wr = 64, recv_wr = 64, sge = 4, inline_data = 64;
    int cqe = 256;
    ibv_srq* srq = nullptr;
    bool all_signaled = false;
};

inline constexpr int kFullAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr size_t kGrh = 40;

/// An open device with a PD and registered memory. create() adds a CQ and a QP. The destructor destroys all objects in the right
/// order. The test fails if an object cannot be destroyed.
class End {
public:
    explicit End(int which, size_t bytes = 64 * 1024) : memory(bytes) {
        context = open_device(which);
        if (context == nullptr) return;
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, memory.data(), memory.size(), kFullAccess | IBV_ACCESS_MW_BIND);
        ibv_query_gid(context, 1, gid_index(), &gid);
    }
    ~End() {
        if (qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        if (cq != nullptr) {
            EXPECT_EQ(ibv_destroy_cq(cq), 0);
        }
        if (channel != nullptr) {
            EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        }
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
        if (pd != nullptr) {
            EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        }
        if (context != nullptr) {
            EXPECT_EQ(ibv_close_device(context), 0);
        }
    }
    End(const End&) = delete;

    ibv_qp* create(const Shape& s = {}) {
        if (cq == nullptr) cq = ibv_create_cq(context, s.cqe, this, channel, 0);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.srq = s.srq;
        attr.qp_type = s.type;
        attr.sq_sig_all = s.all_signaled;
        attr.cap = {s.send_wr, s.recv_wr, s.sge, s.sge, s.inline_data};
        qp = ibv_create_qp(pd, &attr);
        cap = attr.cap;
        return qp;
    }
    int to_init(ibv_qp* q = nullptr) {
        if (q == nullptr) q = qp;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        if (q->qp_type == IBV_QPT_UD) {
            a.qkey = kQkey;
            return ibv_modify_qp(q, &a, mask | IBV_QP_QKEY);
        }
        a.qp_access_flags = kFullAccess;
        return ibv_modify_qp(q, &a, mask | IBV_QP_ACCESS_FLAGS);
    }
    int to_rtr(const End& peer, uint32_t dest_qpn, uint32_t psn, ibv_qp* q = nullptr) {
        if (q == nullptr) q = qp;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        if (q->qp_type == IBV_QPT_UD) return ibv_modify_qp(q, &a, IBV_QP_STATE);
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = dest_qpn;
        a.rq_psn = psn;
        a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.ah_attr = address_of(peer);
        int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if (q->qp_type == IBV_QPT_RC || q->qp_type == IBV_QPT_XRC_RECV) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        return ibv_modify_qp(q, &a, mask);
    }
    int to_rts(uint32_t psn, ibv_qp* q = nullptr) {
        if (q == nullptr) q = qp;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = psn;
        a.timeout = 12;
        a.retry_cnt = 7;
        a.rnr_retry = rnr_retry;
        a.max_rd_atomic = 4;
        int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if (q->qp_type == IBV_QPT_RC || q->qp_type == IBV_QPT_XRC_SEND)
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        if (q->qp_type == IBV_QPT_XRC_RECV) mask |= IBV_QP_TIMEOUT;
        return ibv_modify_qp(q, &a, mask);
    }
    int to_state(ibv_qp_state state) {
        ibv_qp_attr a{};
        a.qp_state = state;
        return ibv_modify_qp(qp, &a, IBV_QP_STATE);
    }
    ibv_qp_state state() {
        ibv_qp_attr a{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), 0);
        return a.qp_state;
    }
    static ibv_ah_attr address_of(const End& peer) {
        ibv_ah_attr a{};
        a.is_global = 1;
        a.port_num = 1;
        a.grh.dgid = peer.gid;
        a.grh.sgid_index = gid_index();
        a.grh.hop_limit = 64;
        return a;
    }

    ibv_sge sge(size_t offset, uint32_t length) const { return {uint64_t(uintptr_t(memory.data())) + offset, length, mr->lkey}; }
    uint64_t address(size_t offset = 0) const { return uint64_t(uintptr_t(memory.data())) + offset; }

    int receive(uint64_t id, size_t offset, uint32_t length) {
        ibv_sge s = sge(offset, length);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &s;
        wr.num_sge = 1;
        return ibv_post_recv(qp, &wr, &bad);
    }
    /// Posts a signalled request of `length` bytes from offset `offset`. `extend` sets the other fields of the
    /// request.
    template <class F>
    int post(ibv_wr_opcode opcode, uint64_t id, size_t offset, uint32_t length, F&& extend, ibv_qp* q = nullptr) {
        ibv_sge s = sge(offset, length);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &s;
        wr.num_sge = 1;
        extend(wr);
        return ibv_post_send(q != nullptr ? q : qp, &wr, &bad);
    }
    int send(uint64_t id, size_t offset, uint32_t length) {
        return post(IBV_WR_SEND, id, offset, length, [](ibv_send_wr&) {});
    }
    int write(const End& peer, uint64_t id, size_t offset, uint32_t length, size_t to) {
        return post(IBV_WR_RDMA_WRITE, id, offset, length, [&](ibv_send_wr& wr) {
            wr.wr.rdma = {peer.address(to), peer.mr->rkey};
        });
    }
    int read(const End& peer, uint64_t id, size_t offset, uint32_t length, size_t from) {
        return post(IBV_WR_RDMA_READ, id, offset, length, [&](ibv_send_wr& wr) {
            wr.wr.rdma = {peer.address(from), peer.mr->rkey};
        });
    }

    /// Returns the next completion. If none arrives in time, the test fails.
    ibv_wc poll(std::chrono::milliseconds patience = 10s) { return poll(cq, patience); }
    static ibv_wc poll(ibv_cq* from, std::chrono::milliseconds patience = 10s) {
        ibv_wc wc{};
        const auto end = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < end) {
            const int n = ibv_poll_cq(from, 1, &wc);
            if (n == 1) return wc;
            EXPECT_EQ(n, 0);
            std::this_thread::yield();
        }
        ADD_FAILURE() << "no completion";
        wc.status = IBV_WC_GENERAL_ERR;
        return wc;
    }
    /// Waits for `time`. Returns true if the CQ is empty after this time.
    bool quiet(std::chrono::milliseconds time = 50ms) {
        std::this_thread::sleep_for(time);
        ibv_wc wc{};
        return ibv_poll_cq(cq, 1, &wc) == 0;
    }
    void fill(size_t offset, size_t length, uint8_t seed) {
        for (size_t i = 0; i < length; ++i) memory[offset + i] = uint8_t(seed + i * 7);
    }

    std::vector<uint8_t> memory;
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_mr* mr = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_qp_cap cap{};
    ibv_gid gid{};
    uint8_t rnr_retry = 7;
};

inline bool same(const End& a, size_t at, const End& b, size_t bt, size_t length) {
    return std::memcmp(a.memory.data() + at, b.memory.data() + bt, length) == 0;
}

/// A test with both ends. connect() gives each end a QP in RTS that is connected to the QP of the other end.
class Pair : public ::testing::Test {
protected:
    void SetUp() override {
        a = std::make_unique<End>(0);
        b = std::make_unique<End>(1);
        ASSERT_NE(a->context, nullptr) << "no device; is rocid running, and LD_LIBRARY_PATH set?";
        ASSERT_NE(b->context, nullptr);
        ASSERT_NE(a->mr, nullptr);
        ASSERT_NE(b->mr, nullptr);
    }
    void connect(const Shape& shape = {}, const Shape* other = nullptr) {
        ASSERT_NE(a->create(shape), nullptr);
        ASSERT_NE(b->create(other != nullptr ? *other : shape), nullptr);
        raise();
    }
    void raise() {
        ASSERT_EQ(a->to_init(), 0);
        ASSERT_EQ(b->to_init(), 0);
        ASSERT_EQ(a->to_rtr(*b, b->qp->qp_num, 200), 0);
        ASSERT_EQ(b->to_rtr(*a, a->qp->qp_num, 100), 0);
        ASSERT_EQ(a->to_rts(100), 0);
        ASSERT_EQ(b->to_rts(200), 0);
    }
    std::unique_ptr<End> a, b;
};

#define EXPECT_DONE(end, id)                   \
    do {                                       \
        const ibv_wc wc_ = (end).poll();       \
        EXPECT_EQ(wc_.status, IBV_WC_SUCCESS); \
        EXPECT_EQ(wc_.wr_id, uint64_t(id));    \
    } while (false)

}  // namespace verbs_test
