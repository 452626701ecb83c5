// Tests of posting with ibv_wr_*: operations, kinds of payload, lists, and the effect of an error.
#include "fixture.hpp"

namespace verbs_test {
namespace {

class QpEx : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        a->cq = ibv_create_cq(a->context, 64, nullptr, nullptr, 0);
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = a->cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {8, 8, 4, 4, 64};
        attr.pd = a->pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                              IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        a->qp = ibv_create_qp_ex(a->context, &attr);
        if (a->qp == nullptr) GTEST_SKIP() << "no ibv_qp_ex";
        a->cap = attr.cap;
        ASSERT_NE(b->create(), nullptr);
        raise();
        ex = ibv_qp_to_qp_ex(a->qp);
        ASSERT_NE(ex, nullptr);
        ibv_wr_start(ex);
        begin(0);
    }
    void begin(uint64_t id) {
        ex->wr_id = id;
        ex->wr_flags = IBV_SEND_SIGNALED;
    }
    /// Sets the data of the current request to `length` bytes from the start of a's memory.
    void data(uint32_t length) { ibv_wr_set_sge(ex, a->mr->lkey, a->address(), length); }
    ibv_wc complete_one(uint64_t id, ibv_wc_opcode opcode) {
        EXPECT_EQ(ibv_wr_complete(ex), 0);
        const ibv_wc wc = a->poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.opcode, opcode);
        ibv_wr_start(ex);
        return wc;
    }
    uint64_t word(const End& e, size_t offset) {
        uint64_t v;
        std::memcpy(&v, e.memory.data() + offset, 8);
        return v;
    }
    void TearDown() override {
        if (ex != nullptr) ibv_wr_abort(ex);
    }
    ibv_qp_ex* ex = nullptr;
};

TEST_F(QpEx, Sends) {
    a->fill(0, 100, 3);
    ASSERT_EQ(b->receive(1, 0, 128), 0);
    ASSERT_EQ(b->receive(2, 0, 128), 0);
    begin(10);
    ibv_wr_send(ex);
    data(100);
    complete_one(10, IBV_WC_SEND);
    EXPECT_EQ(b->poll().byte_len, 100u);
    EXPECT_TRUE(same(*a, 0, *b, 0, 100));
    begin(11);
    ibv_wr_send_imm(ex, 0x55667788);
    data(7);
    complete_one(11, IBV_WC_SEND);
    EXPECT_EQ(b->poll().imm_data, 0x55667788u);
}

TEST_F(QpEx, WritesAndReads) {
    a->fill(0, 3000, 5);
    begin(1);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address(4096));
    data(3000);
    complete_one(1, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(same(*a, 0, *b, 4096, 3000));
    ASSERT_EQ(b->receive(2, 0, 8), 0);
    begin(3);
    ibv_wr_rdma_write_imm(ex, b->mr->rkey, b->address(8192), 77);
    data(10);
    complete_one(3, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(b->poll().imm_data, 77u);
    b->fill(0, 500, 9);
    begin(4);
    ibv_wr_rdma_read(ex, b->mr->rkey, b->address());
    data(500);
    complete_one(4, IBV_WC_RDMA_READ);
    EXPECT_TRUE(same(*a, 0, *b, 0, 500));
}

TEST_F(QpEx, Atomics) {
    const uint64_t five = 5;
    std::memcpy(b->memory.data(), &five, 8);
    begin(1);
    ibv_wr_atomic_cmp_swp(ex, b->mr->rkey, b->address(), 5, 9);
    data(8);
    complete_one(1, IBV_WC_COMP_SWAP);
    EXPECT_EQ(word(*a, 0), 5u);
    begin(2);
    ibv_wr_atomic_fetch_add(ex, b->mr->rkey, b->address(), 4);
    data(8);
    complete_one(2, IBV_WC_FETCH_ADD);
    EXPECT_EQ(word(*a, 0), 9u);
    EXPECT_EQ(word(*b, 0), 13u);
}

TEST_F(QpEx, InlineDataAndLists) {
    char hello[] = "hello, ", world[] = "world";
    const ibv_data_buf parts[] = {{hello, 7}, {world, 6}};
    begin(1);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    ibv_wr_set_inline_data_list(ex, 2, parts);
    std::memset(hello, 'x', 7);  // the library has copied the inline data already
    complete_one(1, IBV_WC_RDMA_WRITE);
    EXPECT_STREQ(reinterpret_cast<char*>(b->memory.data()), "hello, world");
    a->fill(0, 2000, 6);
    const ibv_sge pieces[] = {a->sge(0, 600), a->sge(1000, 400)};
    begin(2);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address(100));
    ibv_wr_set_sge_list(ex, 2, pieces);
    complete_one(2, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(same(*a, 0, *b, 100, 600));
    EXPECT_TRUE(same(*a, 1000, *b, 700, 400));
}

TEST_F(QpEx, ManyAtOnceCompleteInOrder) {
    for (uint64_t i = 0; i < 8; ++i) {
        begin(i);
        ibv_wr_rdma_write(ex, b->mr->rkey, b->address(i * 8));
        data(8);
    }
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    for (uint64_t i = 0; i < 8; ++i) EXPECT_DONE(*a, i);
    ibv_wr_start(ex);
}

TEST_F(QpEx, WhatIsAbortedWasNeverPosted) {
    begin(1);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    data(8);
    ibv_wr_abort(ex);
    EXPECT_TRUE(a->quiet());
    ibv_wr_start(ex);
    begin(2);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    data(8);
    complete_one(2, IBV_WC_RDMA_WRITE);
}

TEST_F(QpEx, OneThatDoesNotFitTakesAllOfItsListAlong) {
    for (uint64_t i = 0; i < a->cap.max_send_wr + 1; ++i) {
        begin(i);
        ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
        data(8);
    }
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    ibv_wr_start(ex);
    std::vector<uint8_t> much(a->cap.max_inline_data + 1);
    begin(1);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    ibv_wr_set_inline_data(ex, much.data(), much.size());
    EXPECT_NE(ibv_wr_complete(ex), 0) << "more inline data than was granted";
    ibv_wr_start(ex);
    const std::vector<ibv_sge> many(a->cap.max_send_sge + 1, a->sge(0, 1));
    begin(2);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    ibv_wr_set_sge_list(ex, many.size(), many.data());
    EXPECT_NE(ibv_wr_complete(ex), 0) << "more elements than were granted";
    EXPECT_TRUE(a->quiet());
    EXPECT_EQ(a->state(), IBV_QPS_RTS);
    ibv_wr_start(ex);
    begin(3);
    ibv_wr_rdma_write(ex, b->mr->rkey, b->address());
    data(8);
    complete_one(3, IBV_WC_RDMA_WRITE);
}

TEST_F(QpEx, OperationsThatTheTransportLacksAreRefused) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = a->cq;
    attr.qp_type = IBV_QPT_UD;
    attr.cap = {8, 8, 1, 1, 0};
    attr.pd = a->pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
    EXPECT_EQ(ibv_create_qp_ex(a->context, &attr), nullptr);
    EXPECT_TRUE(errno == EOPNOTSUPP || errno == EINVAL);
}

TEST_F(QpEx, APlainQpIsNone) { EXPECT_EQ(ibv_qp_to_qp_ex(b->qp), nullptr); }

}  // namespace
}  // namespace verbs_test
