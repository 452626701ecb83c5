// Tests of bad input per verb: a wrong object, protection domain, state, length or key, or too many elements. Bad
// input must not affect existing objects.
#include <functional>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class BadInput : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        other = ibv_alloc_pd(a->context);
        ASSERT_NE(other, nullptr);
    }
    void TearDown() override {
        if (other != nullptr) {
            EXPECT_EQ(ibv_dealloc_pd(other), 0);
        }
    }
    /// Posts a request after `spoil` has changed it. Returns the completion status of the request.
    template <class F>
    ibv_wc_status status_of(ibv_wr_opcode opcode, uint32_t length, F&& spoil) {
        EXPECT_EQ(a->post(opcode, 1, 0, length, spoil), 0);
        return a->poll().status;
    }
    void to_b(ibv_send_wr& wr) const { wr.wr.rdma = {b->address(), b->mr->rkey}; }
    ibv_pd* other = nullptr;
};

// ---- return values --------------------------------------------------------------------------------------------------

/// A verb that returns an errno must also set errno, so that perror() prints the reason. A successful verb must not
/// change errno.
TEST_F(BadInput, WhatAVerbReturnsIsInErrno) {
    connect();
    const auto post = [&](ibv_wr_opcode opcode, int sges) {
        return a->post(opcode, 1, 0, 8, [&](ibv_send_wr& wr) { wr.num_sge = sges; });
    };
    ibv_mw* mw = ibv_alloc_mw(a->pd, IBV_MW_TYPE_1);
    ibv_mw_bind bind{};
    bind.bind_info = {a->mr, a->address(), 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED};
    ibv_port_attr port{};
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    ibv_modify_cq_attr moderation{};
    moderation.attr_mask = 1 << 7;
    const struct {
        const char* verb;
        std::function<int()> call;
        int error;
    } rows[] = {
        {"modify_qp", [&] { return ibv_modify_qp(a->qp, &attr, IBV_QP_STATE); }, EINVAL},
        {"dealloc_pd", [&] { return ibv_dealloc_pd(a->pd); }, EBUSY},
        {"destroy_cq", [&] { return ibv_destroy_cq(a->cq); }, EBUSY},
        {"resize_cq", [&] { return ibv_resize_cq(a->cq, 0); }, EINVAL},
        {"modify_cq", [&] { return ibv_modify_cq(a->cq, &moderation); }, EOPNOTSUPP},
        {"query_port", [&] { return ibv_query_port(a->context, 9, &port); }, EINVAL},
        {"post_send, opcode", [&] { return post(IBV_WR_TSO, 1); }, EINVAL},
        {"post_send, SGEs", [&] { return post(IBV_WR_SEND, 1000); }, EINVAL},
        {"bind_mw", [&] { return mw != nullptr ? ibv_bind_mw(a->qp, mw, &bind) : (errno = EINVAL); }, EINVAL},
    };
    for (const auto& row : rows) {
        errno = 0;
        EXPECT_EQ(row.call(), row.error) << row.verb;
        EXPECT_EQ(errno, row.error) << row.verb;
    }
    errno = EXDEV;
    EXPECT_EQ(ibv_query_port(a->context, 1, &port), 0);
    EXPECT_EQ(a->state(), IBV_QPS_RTS);
    EXPECT_EQ(errno, EXDEV);
    if (mw != nullptr) {
        EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    }
}

// ---- wrong protection domain ----------------------------------------------------------------------------------------

TEST_F(BadInput, MemoryOfAnotherDomainCannotBeSent) {
    ibv_mr* mr = ibv_reg_mr(other, a->memory.data(), 64, kFullAccess);
    ASSERT_NE(mr, nullptr);
    connect();
    EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, 64, [&](ibv_send_wr& wr) { to_b(wr), wr.sg_list->lkey = mr->lkey; }),
              IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(BadInput, AnAddressHandleOfAnotherDomainCannotBeUsed) {
    Shape ud;
    ud.type = IBV_QPT_UD;
    connect(ud);
    ibv_ah_attr attr = End::address_of(*b);
    ibv_ah* ah = ibv_create_ah(other, &attr);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    EXPECT_EQ(status_of(IBV_WR_SEND, 64, [&](ibv_send_wr& wr) { wr.wr.ud = {ah, b->qp->qp_num, kQkey}; }), IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(BadInput, AWindowOfAnotherDomainCannotBeBound) {
    ibv_mw* mw = ibv_alloc_mw(other, IBV_MW_TYPE_1);
    if (mw == nullptr) GTEST_SKIP() << "no memory windows";
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    connect();
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {a->mr, a->address(), 64, IBV_ACCESS_REMOTE_WRITE};
    if (ibv_bind_mw(a->qp, mw, &bind) == 0) {
        EXPECT_EQ(a->poll().status, IBV_WC_MW_BIND_ERR);
    }
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

/// An SRQ uses memory of its own protection domain, whatever the protection domain of the QP is (IBA 10.2.9.2).
TEST_F(BadInput, AnSrqsBuffersAreOfItsOwnDomain) {
    ibv_pd* elsewhere = ibv_alloc_pd(b->context);
    ibv_srq_init_attr attr{};
    attr.attr = {16, 1, 0};
    ibv_srq* srq = ibv_create_srq(elsewhere, &attr);
    ASSERT_NE(srq, nullptr);
    Shape with_srq;
    with_srq.srq = srq;
    connect({}, &with_srq);
    ibv_sge s = b->sge(0, 64);  // memory in the protection domain of the QP
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &s;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    ASSERT_EQ(a->send(1, 0, 64), 0);
    EXPECT_EQ(b->poll().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(ibv_dealloc_pd(elsewhere), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(b->qp), 0);
    b->qp = nullptr;
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_dealloc_pd(elsewhere), 0);
}

// ---- wrong object ---------------------------------------------------------------------------------------------------

/// Handles are small numbers, so objects of two open devices may have the same handle. Nevertheless the library must
/// refuse an object that belongs to another open device.
TEST_F(BadInput, ObjectsOfAnotherOpenDeviceAreRefused) {
    ASSERT_NE(a->create(), nullptr);
    ASSERT_NE(b->create(), nullptr);
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {4, 4, 1, 1, 0};
    attr.send_cq = a->cq;
    attr.recv_cq = b->cq;
    EXPECT_EQ(ibv_create_qp(a->pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {4, 1, 0};
    ibv_srq* srq = ibv_create_srq(b->pd, &srq_attr);
    ASSERT_NE(srq, nullptr);
    attr.recv_cq = a->cq;
    attr.srq = srq;
    EXPECT_EQ(ibv_create_qp(a->pd, &attr), nullptr);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    ibv_comp_channel* channel = ibv_create_comp_channel(b->context);
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(ibv_create_cq(a->context, 16, nullptr, channel, 0), nullptr);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(BadInput, AQpNeedsItsCqs) {
    ASSERT_NE(a->create(), nullptr);
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {4, 4, 1, 1, 0};
    EXPECT_EQ(ibv_create_qp(a->pd, &attr), nullptr);
    attr.send_cq = attr.recv_cq = a->cq;
    attr.qp_type = ibv_qp_type(77);
    EXPECT_EQ(ibv_create_qp(a->pd, &attr), nullptr);
    EXPECT_TRUE(errno == EOPNOTSUPP || errno == EINVAL);
}

TEST_F(BadInput, WhatIsInUseStays) {
    ASSERT_NE(a->create(), nullptr);
    EXPECT_EQ(ibv_dealloc_pd(a->pd), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(a->cq), EBUSY);
    EXPECT_EQ(a->to_init(), 0) << "they were not harmed";
}

// ---- addresses ------------------------------------------------------------------------------------------------------

TEST_F(BadInput, AddressesAreChecked) {
    struct {
        const char* what;
        void (*spoil)(ibv_ah_attr&);
    } const rows[] = {
        {"no GRH", [](ibv_ah_attr& x) { x.is_global = 0; }},
        {"no such port", [](ibv_ah_attr& x) { x.port_num = 9; }},
        {"port 0", [](ibv_ah_attr& x) { x.port_num = 0; }},
        {"no such GID index", [](ibv_ah_attr& x) { x.grh.sgid_index = 200; }},
    };
    ASSERT_NE(a->create(), nullptr);
    ASSERT_EQ(a->to_init(), 0);
    for (const auto& row : rows) {
        ibv_ah_attr attr = End::address_of(*b);
        row.spoil(attr);
        EXPECT_EQ(ibv_create_ah(a->pd, &attr), nullptr) << row.what;
        ibv_qp_attr change{};
        change.qp_state = IBV_QPS_RTR;
        change.path_mtu = IBV_MTU_1024;
        change.dest_qp_num = 5;
        change.max_dest_rd_atomic = 1;
        change.ah_attr = attr;
        EXPECT_NE(ibv_modify_qp(a->qp, &change,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                  0)
            << row.what;
        EXPECT_EQ(a->state(), IBV_QPS_INIT);
    }
}

// ---- values of attributes -------------------------------------------------------------------------------------------

TEST_F(BadInput, AttributesHaveTheirLimits) {
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(a->context, &device), 0);
    ASSERT_NE(a->create(), nullptr);
    ASSERT_NE(b->create(), nullptr);
    ASSERT_EQ(a->to_init(), 0);
    ASSERT_EQ(a->to_rtr(*b, b->qp->qp_num, 1), 0);
    struct {
        const char* what;
        void (*spoil)(ibv_qp_attr&, const ibv_device_attr&);
    } const rows[] = {
        {"timeout", [](ibv_qp_attr& x, const ibv_device_attr&) { x.timeout = 32; }},
        {"retry_cnt", [](ibv_qp_attr& x, const ibv_device_attr&) { x.retry_cnt = 8; }},
        {"rnr_retry", [](ibv_qp_attr& x, const ibv_device_attr&) { x.rnr_retry = 8; }},
        {"max_rd_atomic", [](ibv_qp_attr& x, const ibv_device_attr& d) { x.max_rd_atomic = uint8_t(d.max_qp_init_rd_atom + 1); }},
    };
    constexpr int kMask =
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    for (const auto& row : rows) {
        ibv_qp_attr change{};
        change.qp_state = IBV_QPS_RTS;
        row.spoil(change, device);
        EXPECT_EQ(ibv_modify_qp(a->qp, &change, kMask), EINVAL) << row.what;
        EXPECT_EQ(a->state(), IBV_QPS_RTR);
    }
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(a->qp, &change, kMask & ~IBV_QP_TIMEOUT), EINVAL) << "one is missing";
    EXPECT_EQ(ibv_modify_qp(a->qp, &change, kMask | IBV_QP_QKEY), EINVAL) << "one too many";
    EXPECT_EQ(a->to_rts(1), 0);
}

// ---- requests -------------------------------------------------------------------------------------------------------

TEST_F(BadInput, AnAtomicIsOfEightBytes) {
    connect();
    const auto atomic = [&](ibv_send_wr& wr) { wr.wr.atomic = {b->address(), 1, 0, b->mr->rkey}; };
    if (a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 4, atomic) == 0) {
        EXPECT_EQ(a->poll().status, IBV_WC_LOC_LEN_ERR);
    }
}

TEST_F(BadInput, AReadNeedsMemoryThatMayBeWritten) {
    ibv_mr* read_only = ibv_reg_mr(a->pd, a->memory.data(), 64, 0);
    ASSERT_NE(read_only, nullptr);
    connect();
    EXPECT_EQ(status_of(IBV_WR_RDMA_READ, 64, [&](ibv_send_wr& wr) { to_b(wr), wr.sg_list->lkey = read_only->lkey; }),
              IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

TEST_F(BadInput, AReceiveIntoReadOnlyMemoryFailsBothEnds) {
    ibv_mr* read_only = ibv_reg_mr(b->pd, b->memory.data(), 64, 0);
    ASSERT_NE(read_only, nullptr);
    connect();
    ibv_sge s{b->address(), 64, read_only->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &s;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(b->qp, &wr, &bad), 0);
    ASSERT_EQ(a->send(1, 0, 64), 0);
    EXPECT_EQ(b->poll().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

TEST_F(BadInput, RightsOfTheQpCount) {
    connect();
    ibv_qp_attr change{};
    change.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    ASSERT_EQ(ibv_modify_qp(b->qp, &change, IBV_QP_ACCESS_FLAGS), 0);
    EXPECT_EQ(status_of(IBV_WR_RDMA_READ, 64, [&](ibv_send_wr& wr) { to_b(wr); }), IBV_WC_SUCCESS);
    EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, 64, [&](ibv_send_wr& wr) { to_b(wr); }), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(BadInput, OpcodesThatAreNoneAreRefused) {
    connect();
    for (uint32_t opcode = 12; opcode < 40; ++opcode) {
        if (opcode == IBV_WR_ATOMIC_WRITE) continue;
        ibv_wr_opcode as_enum;
        std::memcpy(&as_enum, &opcode, sizeof opcode);
        EXPECT_EQ(a->post(as_enum, 1, 0, 8, [&](ibv_send_wr& wr) { to_b(wr); }), EINVAL) << opcode;
    }
    EXPECT_TRUE(a->quiet());
    EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, 64, [&](ibv_send_wr& wr) { to_b(wr); }), IBV_WC_SUCCESS);
}

TEST_F(BadInput, OperationsOfOtherTransportsAreRefused) {
    struct {
        ibv_qp_type type;
        ibv_wr_opcode opcode;
    } const rows[] = {{IBV_QPT_UC, IBV_WR_RDMA_READ},
                      {IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP},
                      {IBV_QPT_UD, IBV_WR_RDMA_WRITE},
                      {IBV_QPT_UD, IBV_WR_RDMA_READ}};
    for (const auto& row : rows) {
        Shape shape;
        shape.type = row.type;
        connect(shape);
        EXPECT_EQ(a->post(row.opcode, 1, 0, 8, [](ibv_send_wr&) {}), EINVAL) << row.opcode;
        for (End* end : {a.get(), b.get()}) {
            EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
            end->qp = nullptr;
        }
    }
}

TEST_F(BadInput, TooManyElementsStopAListOfReceives) {
    connect();
    ibv_sge s = b->sge(0, 8);
    ibv_recv_wr list[3] = {};
    for (int i = 0; i < 3; ++i) {
        list[i].wr_id = uint64_t(i);
        list[i].sg_list = &s;
        list[i].num_sge = 1;
        list[i].next = i < 2 ? &list[i + 1] : nullptr;
    }
    list[1].num_sge = int(b->cap.max_recv_sge) + 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(b->qp, list, &bad), EINVAL);
    EXPECT_EQ(bad, &list[1]);
    list[0].num_sge = -1;
    EXPECT_EQ(ibv_post_recv(b->qp, list, &bad), EINVAL);
    EXPECT_EQ(bad, &list[0]);
    ASSERT_EQ(a->send(5, 0, 8), 0);
    EXPECT_DONE(*b, 0);
    EXPECT_DONE(*a, 5);
}

TEST_F(BadInput, ADatagramNeedsAnAddress) {
    Shape ud;
    ud.type = IBV_QPT_UD;
    connect(ud);
    EXPECT_EQ(a->post(IBV_WR_SEND, 1, 0, 8, [](ibv_send_wr& wr) { wr.wr.ud.ah = nullptr; }), EINVAL);
    EXPECT_TRUE(a->quiet());
}

}  // namespace
}  // namespace verbs_test
