// Tests of the extended interfaces ibv_cq_ex and ibv_qp_ex.
#include "newer.hpp"
#include "rings_fixture.hpp"

namespace roci::test {
namespace {

TEST_F(Rings, WallClockTimesKeepTheDistancesOfTimestampsAlsoAcrossCqs) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    ibv_cq_ex* cqs[] = {ibv_create_cq_ex(context, &attr), ibv_create_cq_ex(context, &attr)};
    ASSERT_NE(cqs[0], nullptr);
    ASSERT_NE(cqs[1], nullptr);
    ibv_qp* users[] = {make_qp(ibv_cq_ex_to_cq(cqs[0])), make_qp(ibv_cq_ex_to_cq(cqs[1]))};
    ibv_poll_cq_attr poll_attr{};
    uint64_t first = 0;
    for (uint64_t i = 0; i < 64; ++i) {
        ibv_cq_ex* one = cqs[i % 2];
        abi::Cqe e = entry(users[i % 2], abi::kCqeRecv, i);
        e.timestamp = 1'000'000 + i;
        rocid.complete(one->handle, 0, e);
        ASSERT_EQ(ibv_start_poll(one, &poll_attr), 0);
        const uint64_t wall = ibv_wc_read_completion_wallclock_ns(one);
        if (i == 0) first = wall;
        EXPECT_EQ(wall - first, i);
        ibv_end_poll(one);
    }
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(ibv_destroy_qp(users[i]), 0);
        EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cqs[i])), 0);
    }
}

TEST_F(Rings, TheExtendedCqIterates) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS;
    ibv_cq_ex* ex = ibv_create_cq_ex(context, &attr);
    ASSERT_NE(ex, nullptr);
    ibv_qp* user = make_qp(ibv_cq_ex_to_cq(ex));
    ibv_poll_cq_attr poll_attr{};
    EXPECT_EQ(ibv_start_poll(ex, &poll_attr), ENOENT);
    EXPECT_EQ(ibv_start_poll(ex, &poll_attr), ENOENT) << "the lock was given back";
    for (uint64_t i = 0; i < 2; ++i) {
        abi::Cqe e = entry(user, abi::kCqeRecv, 70 + i);
        e.byte_len = uint32_t(100 + i);
        e.imm_or_inv = 5;
        e.src_qp = 6;
        e.sl = 3;
        e.tag = 0xabc;
        e.timestamp = 12345;
        e.wc_flags = abi::kWcWithImm;
        rocid.complete(ex->handle, 0, e);
    }
    ASSERT_EQ(ibv_start_poll(ex, &poll_attr), 0);
    EXPECT_EQ(ex->wr_id, 70u);
    EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(ex), 100u);
    EXPECT_EQ(ibv_wc_read_imm_data(ex), 5u);
    EXPECT_EQ(ibv_wc_read_qp_num(ex), user->qp_num);
    EXPECT_EQ(ibv_wc_read_src_qp(ex), 6u);
    EXPECT_EQ(ibv_wc_read_wc_flags(ex), unsigned(IBV_WC_WITH_IMM));
    EXPECT_EQ(ibv_wc_read_sl(ex), 3);
    EXPECT_EQ(ibv_wc_read_slid(ex), 0u);
    EXPECT_EQ(ibv_wc_read_completion_ts(ex), 12345u);
    EXPECT_GT(ibv_wc_read_completion_wallclock_ns(ex), 12345u);
    ibv_wc_tm_info tm{};
    ibv_wc_read_tm_info(ex, &tm);
    EXPECT_EQ(tm.tag, 0xabcu);
    ASSERT_EQ(ibv_next_poll(ex), 0);
    EXPECT_EQ(ex->wr_id, 71u);
    EXPECT_EQ(ibv_wc_read_byte_len(ex), 101u);
    EXPECT_EQ(ibv_next_poll(ex), ENOENT);
    EXPECT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(ex), 0), 0) << "arming in the middle of a poll";
    ibv_end_poll(ex);
    EXPECT_EQ(ibv_destroy_qp(user), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);

    attr.wc_flags = uint64_t{1} << 40;
    EXPECT_EQ(ibv_create_cq_ex(context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
    ex = ibv_create_cq_ex(context, &attr);
    ASSERT_NE(ex, nullptr);
    EXPECT_NE(ex->read_qp_num, nullptr);
    EXPECT_EQ(ex->read_byte_len, nullptr) << "only what was asked for";
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(Rings, TheExtendedQpPostsAllOrNothing) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 3, 2, 32};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE | client::kQpExWithFlush;
    ibv_qp* base = ibv_create_qp_ex(context, &attr);
    ASSERT_NE(base, nullptr);
    set_state(base, IBV_QPS_RTS);
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(base);
    ASSERT_NE(ex, nullptr);
    const FakeRocid::Qp& shared = rocid.qp(base->handle);

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, 0x77, 0x8000);
    ibv_wr_set_sge(ex, 0x11, sge[0].addr, 10);
    ex->wr_id = 2;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, data, 5);
    EXPECT_EQ(shared.posted_sends(), 0u) << "published only at the end";
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(shared.posted_sends(), 2u);
    const abi::SendWqe& first = rocid.send_wqe(base->handle, 0);
    EXPECT_EQ(first.opcode, abi::WrOpcode::rdma_write);
    EXPECT_EQ(first.remote_addr, 0x8000u);
    EXPECT_EQ(first.rkey, 0x77u);
    EXPECT_EQ(first.num_sge, 1);
    EXPECT_EQ(first.send_flags, abi::kSendSignaled);
    const abi::SendWqe& second = rocid.send_wqe(base->handle, 1);
    EXPECT_EQ(second.wr_id, 2u);
    EXPECT_EQ(second.send_flags, abi::kSendInline);
    EXPECT_EQ(second.inline_length, 5u);

    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    EXPECT_EQ(shared.posted_sends(), 2u);
    ibv_wr_start(ex);
    for (int i = 0; i < 3; ++i) ibv_wr_send(ex);  // only two slots are free
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    EXPECT_EQ(shared.posted_sends(), 2u);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    char large[65] = {};
    ibv_wr_set_inline_data(ex, large, sizeof large);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    const uint64_t value = 42;
    ibv_wr_start(ex);
    ibv_wr_atomic_write(ex, 1, 0x9000, &value);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(rocid.send_wqe(base->handle, 2).compare_add, 42u);
    auto* newer = reinterpret_cast<client::QpEx*>(ex);
    ibv_wr_start(ex);
    newer->wr_flush(ex, 0x33, 0xa000, 5000, abi::kFlushGlobal, 1);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    const abi::SendWqe& flush = rocid.send_wqe(base->handle, 3);
    EXPECT_EQ(flush.opcode, abi::WrOpcode::flush);
    EXPECT_EQ(flush.rkey, 0x33u);
    EXPECT_EQ(flush.remote_addr, 0xa000u);
    EXPECT_EQ(flush.flush_length, 5000u);
    EXPECT_EQ(flush.flush, abi::kFlushGlobal | abi::kFlushRegion);
    set_state(base, IBV_QPS_RESET);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(base), 0);

    attr.qp_type = IBV_QPT_UD;  // a UD QP has no RDMA operations
    EXPECT_EQ(ibv_create_qp_ex(context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace roci::test
