// Tests of operations: RDMA, atomics, immediate data, inline data, SGEs, invalidation, memory windows and atomic
// write.
#include "fixture.hpp"

namespace verbs_test {
namespace {

class Operations : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        connect();
    }
    uint64_t word(const End& e, size_t offset) {
        uint64_t v;
        std::memcpy(&v, e.memory.data() + offset, 8);
        return v;
    }
    void set_word(End& e, size_t offset, uint64_t v) { std::memcpy(e.memory.data() + offset, &v, 8); }
};

TEST_F(Operations, WriteAndReadBack) {
    a->fill(0, 20000, 77);
    ASSERT_EQ(a->write(*b, 1, 0, 20000, 100), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_TRUE(same(*a, 0, *b, 100, 20000));
    ASSERT_EQ(a->read(*b, 2, 32768, 20000, 100), 0);
    const ibv_wc wc = a->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_TRUE(same(*a, 32768, *b, 100, 20000));
}

TEST_F(Operations, ImmediateDataComesThroughUnchanged) {
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(b->receive(2, 0, 64), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND_WITH_IMM, 3, 0, 10, [](ibv_send_wr& wr) { wr.imm_data = 0x12345678; }), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 4, 0, 10,
                      [&](ibv_send_wr& wr) {
                          wr.imm_data = 0x9abcdef0;
                          wr.wr.rdma = {b->address(4096), b->mr->rkey};
                      }),
              0);
    const ibv_wc first = b->poll(), second = b->poll();
    EXPECT_EQ(first.wr_id, 1u);
    EXPECT_EQ(first.opcode, IBV_WC_RECV);
    EXPECT_EQ(first.imm_data, 0x12345678u);
    EXPECT_EQ(first.wc_flags & IBV_WC_WITH_IMM, unsigned(IBV_WC_WITH_IMM));
    EXPECT_EQ(second.wr_id, 2u);
    EXPECT_EQ(second.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(second.imm_data, 0x9abcdef0u);
    EXPECT_EQ(second.byte_len, 10u);
    EXPECT_DONE(*a, 3);
    EXPECT_DONE(*a, 4);
}

TEST_F(Operations, CompareAndSwapSwapsOnlyWhatIsEqual) {
    set_word(*b, 64, 5);
    for (uint64_t compare : {uint64_t{4}, uint64_t{5}}) {
        ASSERT_EQ(a->post(IBV_WR_ATOMIC_CMP_AND_SWP, compare, 0, 8,
                          [&](ibv_send_wr& wr) {
                              wr.wr.atomic = {b->address(64), compare, 99, b->mr->rkey};
                          }),
                  0);
        EXPECT_DONE(*a, compare);
        EXPECT_EQ(word(*a, 0), 5u);
        EXPECT_EQ(word(*b, 64), compare == 5 ? 99u : 5u);
    }
}

TEST_F(Operations, FetchAndAddReturnsWhatWasThere) {
    set_word(*b, 64, ~uint64_t{0});
    for (uint64_t i = 0; i < 20; ++i) {
        ASSERT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8,
                          [&](ibv_send_wr& wr) {
                              wr.wr.atomic = {b->address(64), 1, 0, b->mr->rkey};
                          }),
                  0);
        EXPECT_DONE(*a, i);
        EXPECT_EQ(word(*a, 0), i - 1);
    }
}

TEST_F(Operations, AMisalignedAtomicIsAnInvalidRequest) {
    ASSERT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8,
                      [&](ibv_send_wr& wr) {
                          wr.wr.atomic = {b->address(4), 1, 0, b->mr->rkey};
                      }),
              0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Operations, InlineDataIsTakenWhenPosted) {
    ASSERT_GE(a->cap.max_inline_data, 64u);
    a->fill(0, 64, 1);
    std::vector<uint8_t> original(a->memory.begin(), a->memory.begin() + 64);
    ASSERT_EQ(b->receive(1, 0, 64), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 2, 0, 64,
                      [](ibv_send_wr& wr) {
                          wr.send_flags |= IBV_SEND_INLINE;
                          wr.sg_list->lkey = 0;  // the library must ignore the lkey of inline data
                      }),
              0);
    a->fill(0, 64, 200);
    EXPECT_DONE(*b, 1);
    EXPECT_EQ(std::memcmp(b->memory.data(), original.data(), 64), 0);
    EXPECT_DONE(*a, 2);
}

TEST_F(Operations, TooMuchInlineDataIsRefused) {
    EXPECT_NE(a->post(IBV_WR_SEND, 1, 0, a->cap.max_inline_data + 1, [](ibv_send_wr& wr) { wr.send_flags |= IBV_SEND_INLINE; }),
              0);
    EXPECT_EQ(a->state(), IBV_QPS_RTS);
}

TEST_F(Operations, GathersAndScatters) {
    a->fill(0, 4096, 11);
    ibv_sge out[3] = {a->sge(0, 10), a->sge(1000, 0), a->sge(2000, 1500)};
    ibv_sge in[2] = {b->sge(0, 700), b->sge(5000, 2000)};
    ibv_recv_wr recv{}, *bad_recv = nullptr;
    recv.sg_list = in;
    recv.num_sge = 2;
    ASSERT_EQ(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, 0, 0,
                      [&](ibv_send_wr& wr) {
                          wr.sg_list = out;
                          wr.num_sge = 3;
                      }),
              0);
    EXPECT_DONE(*a, 1);
    EXPECT_EQ(b->poll().byte_len, 1510u);
    EXPECT_TRUE(same(*a, 0, *b, 0, 10));
    EXPECT_TRUE(same(*a, 2000, *b, 10, 690));
    EXPECT_TRUE(same(*a, 2690, *b, 5000, 810));
}

/// Gathers from and scatters to the maximum number of SGEs. No SGE ends at a packet boundary.
TEST_F(Operations, AsManyElementsAsTheDeviceSays) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
    const auto many = uint32_t(attr.max_sge);
    for (End* end : {a.get(), b.get()}) {
        EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
        end->qp = nullptr;
    }
    Shape wide;
    wide.sge = many;
    connect(wide);
    constexpr uint32_t kEach = 301, kApart = 1024;
    std::vector<ibv_sge> out, in;
    for (uint32_t i = 0; i < many; ++i) {
        a->fill(i * kApart, kEach, uint8_t(i));
        out.push_back(a->sge(i * kApart, kEach));
        in.push_back(b->sge((many - 1 - i) * kApart, kEach));
    }
    ibv_recv_wr recv{}, *bad = nullptr;
    recv.sg_list = in.data();
    recv.num_sge = int(many);
    ASSERT_EQ(ibv_post_recv(b->qp, &recv, &bad), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 1, 0, 0,
                      [&](ibv_send_wr& wr) {
                          wr.sg_list = out.data();
                          wr.num_sge = int(many);
                      }),
              0);
    EXPECT_DONE(*a, 1);
    EXPECT_EQ(b->poll().byte_len, many * kEach);
    for (uint32_t i = 0; i < many; ++i) EXPECT_TRUE(same(*a, i * kApart, *b, (many - 1 - i) * kApart, kEach)) << i;
}

TEST_F(Operations, ZeroLengthWorksWithoutAnyKey) {
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 0, [](ibv_send_wr& wr) { wr.num_sge = 0; }), 0);
    EXPECT_DONE(*a, 1);
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 2, 0, 0, [](ibv_send_wr& wr) { wr.num_sge = 0; }), 0);
    EXPECT_DONE(*a, 2);
}

TEST_F(Operations, AMessageLongerThanItsReceiveBufferFailsBothEnds) {
    ASSERT_EQ(b->receive(1, 0, 100), 0);
    ASSERT_EQ(a->send(2, 0, 101), 0);
    EXPECT_EQ(b->poll().status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_INV_REQ_ERR);
}

class Windows : public Operations {
protected:
    void SetUp() override {
        Operations::SetUp();
        ibv_device_attr attr{};
        ASSERT_EQ(ibv_query_device(b->context, &attr), 0);
        if (attr.max_mw == 0) GTEST_SKIP() << "the device has no memory windows";
    }
    int write_through(uint32_t rkey, size_t to, uint32_t length) {
        return a->post(IBV_WR_RDMA_WRITE, 1, 0, length, [&](ibv_send_wr& wr) { wr.wr.rdma = {b->address(to), rkey}; });
    }
};

TEST_F(Windows, Type1OpensItsRangeOnly) {
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ibv_mw_bind bind{};
    bind.wr_id = 7;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {b->mr, b->address(4096), 4096, IBV_ACCESS_REMOTE_WRITE};
    const uint32_t before = mw->rkey;
    ASSERT_EQ(ibv_bind_mw(b->qp, mw, &bind), 0);
    EXPECT_NE(mw->rkey, before);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(wc.wr_id, 7u);
    a->fill(0, 4096, 4);
    ASSERT_EQ(write_through(mw->rkey, 4096, 4096), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_TRUE(same(*a, 0, *b, 4096, 4096));
    ASSERT_EQ(write_through(mw->rkey, 4097, 4096), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type2IsClosedBySendWithInvalidate) {
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    if (mw == nullptr) GTEST_SKIP() << "no type 2 windows";
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(b->post(IBV_WR_BIND_MW, 1, 0, 0,
                      [&](ibv_send_wr& wr) {
                          wr.num_sge = 0;
                          wr.bind_mw.mw = mw;
                          wr.bind_mw.rkey = rkey;
                          wr.bind_mw.bind_info = {b->mr, b->address(0), 8192, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
                      }),
              0);
    EXPECT_DONE(*b, 1);
    ASSERT_EQ(write_through(rkey, 100, 200), 0);
    EXPECT_DONE(*a, 1);
    ASSERT_EQ(b->receive(2, 32768, 16), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND_WITH_INV, 3, 0, 4, [&](ibv_send_wr& wr) { wr.invalidate_rkey = rkey; }), 0);
    EXPECT_DONE(*a, 3);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_INV, unsigned(IBV_WC_WITH_INV));
    EXPECT_EQ(wc.invalidated_rkey, rkey);
    ASSERT_EQ(write_through(rkey, 100, 200), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type1BoundAnewHasANewKeyAndTheOldOneIsDead) {
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    uint32_t old = 0;
    for (const size_t from : {size_t{0}, size_t{8192}}) {
        old = mw->rkey;
        bind.bind_info = {b->mr, b->address(from), 4096, IBV_ACCESS_REMOTE_WRITE};
        ASSERT_EQ(ibv_bind_mw(b->qp, mw, &bind), 0);
        EXPECT_EQ(b->poll().status, IBV_WC_SUCCESS);
        ASSERT_EQ(write_through(mw->rkey, from, 64), 0);
        EXPECT_DONE(*a, 1);
    }
    EXPECT_NE(old, mw->rkey);
    ASSERT_EQ(write_through(old, 0, 64), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type2IsClosedByLocalInvalidate) {
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    if (mw == nullptr) GTEST_SKIP() << "no type 2 windows";
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    const auto bind = [&](ibv_send_wr& wr) {
        wr.num_sge = 0;
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = rkey;
        wr.bind_mw.bind_info = {b->mr, b->address(0), 8192, IBV_ACCESS_REMOTE_WRITE};
    };
    const auto invalidate = [&](ibv_send_wr& wr) {
        wr.num_sge = 0;
        wr.invalidate_rkey = rkey;
    };
    ASSERT_EQ(b->post(IBV_WR_BIND_MW, 1, 0, 0, bind), 0);
    EXPECT_DONE(*b, 1);
    ASSERT_EQ(write_through(rkey, 0, 64), 0);
    EXPECT_DONE(*a, 1);
    ASSERT_EQ(b->post(IBV_WR_LOCAL_INV, 2, 0, 0, invalidate), 0);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
    ASSERT_EQ(write_through(rkey, 0, 64), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, Type2TakesTheWindowOfTheRequestWhateverItsKeySays) {
    ibv_mw* mine = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    ibv_mw* other = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    if (mine == nullptr || other == nullptr) GTEST_SKIP() << "no type 2 windows";
    const uint32_t rkey = (mine->rkey & ~0xffu) | (ibv_inc_rkey(other->rkey) & 0xff);
    ASSERT_EQ(b->post(IBV_WR_BIND_MW, 1, 0, 0,
                      [&](ibv_send_wr& wr) {
                          wr.num_sge = 0;
                          wr.bind_mw.mw = mine;
                          wr.bind_mw.rkey = ibv_inc_rkey(other->rkey);
                          wr.bind_mw.bind_info = {b->mr, b->address(0), 4096, IBV_ACCESS_REMOTE_WRITE};
                      }),
              0);
    EXPECT_DONE(*b, 1);
    EXPECT_EQ(mine->rkey, rkey) << "the index is the window's own";
    ASSERT_EQ(write_through(rkey, 100, 200), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_TRUE(same(*a, 0, *b, 100, 200));
    ASSERT_EQ(write_through(ibv_inc_rkey(other->rkey), 100, 200), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR) << "the other window was never bound";
    EXPECT_EQ(ibv_dealloc_mw(mine), 0);
    EXPECT_EQ(ibv_dealloc_mw(other), 0);
}

TEST_F(Windows, ARegionWithABoundWindowCannotBeDeregistered) {
    ibv_mr* region = ibv_reg_mr(b->pd, b->memory.data(), 4096, kFullAccess | IBV_ACCESS_MW_BIND);
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {region, b->address(), 4096, IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(ibv_bind_mw(b->qp, mw, &bind), 0);
    EXPECT_EQ(b->poll().status, IBV_WC_SUCCESS);
    errno = 0;
    EXPECT_EQ(ibv_dereg_mr(region), EINVAL);
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(write_through(mw->rkey, 0, 64), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(Windows, AZeroBasedWindowIsAddressedFromItsFirstByte) {
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    if (mw == nullptr) GTEST_SKIP() << "no type 2 windows";
    constexpr unsigned kAll = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    ASSERT_EQ(b->post(IBV_WR_BIND_MW, 1, 0, 0,
                      [&](ibv_send_wr& wr) {
                          wr.num_sge = 0;
                          wr.bind_mw.mw = mw;
                          wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
                          wr.bind_mw.bind_info = {b->mr, b->address(4096), 8192, kAll | IBV_ACCESS_ZERO_BASED};
                      }),
              0);
    EXPECT_DONE(*b, 1);
    const auto at = [&](uint64_t va) { return [=](ibv_send_wr& wr) { wr.wr.rdma = {va, mw->rkey}; }; };
    a->fill(0, 5000, 9);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 2, 0, 5000, at(3000)), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_TRUE(same(*a, 0, *b, 4096 + 3000, 5000));
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 3, 16384, 5000, at(3000)), 0);
    EXPECT_DONE(*a, 3);
    EXPECT_TRUE(same(*a, 16384, *b, 4096 + 3000, 5000));
    std::memset(b->memory.data() + 4096 + 8, 0, 8);
    ASSERT_EQ(a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, 8, [&](ibv_send_wr& wr) { wr.wr.atomic = {8, 5, 0, mw->rkey}; }), 0);
    EXPECT_DONE(*a, 4);
    EXPECT_EQ(b->memory[4096 + 8], 5);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 5, 0, 2, at(8191)), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Windows, MoreRightsThanTheRegionHasCannotBeBound) {
    ibv_mr* read_only = ibv_reg_mr(b->pd, b->memory.data(), 4096, IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ);
    ibv_mw* mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {read_only, b->address(), 4096, IBV_ACCESS_REMOTE_WRITE};
    if (ibv_bind_mw(b->qp, mw, &bind) == 0) {
        EXPECT_EQ(b->poll().status, IBV_WC_MW_BIND_ERR);
    }
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

TEST(AtomicWrite, StoresEightBytes) {
    End a(0), b(1);
    ASSERT_NE(a.context, nullptr);
    a.cq = ibv_create_cq(a.context, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = a.cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {8, 8, 1, 1, 0};
    attr.pd = a.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
    a.qp = ibv_create_qp_ex(a.context, &attr);
    if (a.qp == nullptr) GTEST_SKIP() << "no atomic write";
    ASSERT_NE(b.create(), nullptr);
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(b.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b, b.qp->qp_num, 200), 0);
    ASSERT_EQ(b.to_rtr(a, a.qp->qp_num, 100), 0);
    ASSERT_EQ(a.to_rts(100), 0);
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(a.qp);
    ASSERT_NE(ex, nullptr);
    const auto post = [&](uint64_t value, size_t to) {
        ibv_wr_start(ex);
        ex->wr_id = value;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_atomic_write(ex, b.mr->rkey, b.address(to), &value);
        return ibv_wr_complete(ex);
    };
    for (uint64_t v : {uint64_t{1}, uint64_t{0x1122334455667788}}) {
        ASSERT_EQ(post(v, 64), 0);
        const ibv_wc wc = a.poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
        EXPECT_EQ(std::memcmp(b.memory.data() + 64, &v, 8), 0);
    }
    ASSERT_EQ(post(3, 68), 0);
    EXPECT_EQ(a.poll().status, IBV_WC_REM_INV_REQ_ERR);
}

}  // namespace
}  // namespace verbs_test
