// Tests of FLUSH by the public verbs of rdma-core 45 and newer. The header newer.hpp declares what the headers of Debian 12 do
// not have.
#include "fixture.hpp"
#include "newer.hpp"

namespace verbs_test {
namespace {

namespace newer = roci::client;

constexpr unsigned kFlushPersistentAccess = 1 << 9;
constexpr uint8_t kGlobal = 1, kPersistent = 2, kRange = 0, kRegion = 1;  // enum ibv_placement_type, enum ibv_selectivity_level
constexpr auto kFlushCompleted = ibv_wc_opcode(8);

/// A connection. The QP of the first end is created for WRITE and FLUSH. The second end has memory with the right for FLUSH.
struct Flush : ::testing::Test {
    End a{0}, b{1};
    ibv_mr* mr = nullptr;
    newer::QpEx* ex = nullptr;

    void SetUp() override {
        ASSERT_NE(b.create(), nullptr);
        mr = ibv_reg_mr(b.pd, b.memory.data(), b.memory.size(), kFullAccess | int(newer::kAccessFlushGlobal));
        ASSERT_NE(mr, nullptr);
        a.cq = ibv_create_cq(a.context, 16, nullptr, nullptr, 0);
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = a.cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {8, 8, 1, 1, 0};
        attr.pd = a.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = newer::kQpExWithFlush | IBV_QP_EX_WITH_RDMA_WRITE;
        a.qp = ibv_create_qp_ex(a.context, &attr);
        ASSERT_NE(a.qp, nullptr);
        ex = reinterpret_cast<newer::QpEx*>(ibv_qp_to_qp_ex(a.qp));
        ASSERT_EQ(a.to_init(), 0);
        ASSERT_EQ(b.to_init(), 0);
        ASSERT_EQ(permit(kFullAccess | newer::kAccessFlushGlobal | kFlushPersistentAccess), 0);
        ASSERT_EQ(a.to_rtr(b, b.qp->qp_num, 200), 0);
        ASSERT_EQ(b.to_rtr(a, a.qp->qp_num, 100), 0);
        ASSERT_EQ(a.to_rts(100), 0);
        ASSERT_EQ(b.to_rts(200), 0);  // RTR permits no change of rights
    }
    void TearDown() override {
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
    }
    int permit(unsigned rights) {
        ibv_qp_attr change{};
        change.qp_access_flags = rights;
        return ibv_modify_qp(b.qp, &change, IBV_QP_ACCESS_FLAGS);
    }
    /// Posts a FLUSH. Returns the result of ibv_wr_complete().
    int post(uint64_t address, size_t length, uint8_t type, uint8_t level, uint32_t key) {
        ibv_wr_start(ex);
        ex->wr_id = 7;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ex->wr_flush(ex, key, address, length, type, level);
        return ibv_wr_complete(ex);
    }
    ibv_wc_status flush(uint64_t address, size_t length, uint8_t type, uint8_t level) {
        EXPECT_EQ(post(address, length, type, level, mr->rkey), 0);
        const ibv_wc wc = a.poll();
        EXPECT_EQ(wc.wr_id, 7u);
        if (wc.status == IBV_WC_SUCCESS) {
            EXPECT_EQ(wc.opcode, kFlushCompleted);
        }
        return wc.status;
    }
};

TEST_F(Flush, CompletesAfterTheDataOfEarlierWrites) {
    for (unsigned i = 1; i <= 100; ++i) {
        std::memset(a.memory.data(), int(i), 10000);
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_rdma_write(ex, mr->rkey, b.address());
        ibv_wr_set_sge(ex, a.mr->lkey, a.address(), 10000);
        ex->wr_id = i;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ex->wr_flush(ex, mr->rkey, b.address(), 10000, kGlobal, kRange);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        const ibv_wc wc = a.poll();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
        EXPECT_EQ(wc.opcode, kFlushCompleted);
        EXPECT_EQ(std::memcmp(b.memory.data(), a.memory.data(), 10000), 0);
    }
}

TEST_F(Flush, OfTheWholeRegionNeedsOnlyTheKey) {
    EXPECT_EQ(flush(b.address(), 0, kGlobal, kRegion), IBV_WC_SUCCESS);
    EXPECT_EQ(flush(12345, 12345678, kGlobal, kRegion), IBV_WC_SUCCESS);
    EXPECT_EQ(flush(b.address(), b.memory.size(), kGlobal, kRange), IBV_WC_SUCCESS);
    EXPECT_EQ(flush(b.address(), b.memory.size() + 1, kGlobal, kRange), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Flush, NeedsTheRightOfTheRegion) {
    ASSERT_EQ(post(b.address(), 10, kGlobal, kRange, b.mr->rkey), 0);
    EXPECT_EQ(a.poll().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Flush, NeedsTheRightOfTheQp) {
    ASSERT_EQ(permit(kFullAccess), 0);
    EXPECT_EQ(flush(b.address(), 10, kGlobal, kRange), IBV_WC_REM_INV_REQ_ERR);
}

// The device has no persistent memory, so no region has the right for persistence.
TEST_F(Flush, ToPersistenceIsRefused) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(b.pd, b.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | int(kFlushPersistentAccess)), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(flush(b.address(), 10, kPersistent, kRange), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Flush, OfReservedValuesIsNotPosted) {
    EXPECT_EQ(post(b.address(), 10, 0, kRange, mr->rkey), EINVAL) << "no placement type";
    EXPECT_EQ(post(b.address(), 10, 1 << 2, kRange, mr->rkey), EINVAL);
    EXPECT_EQ(post(b.address(), 10, 0x11, kRange, mr->rkey), EINVAL);
    EXPECT_EQ(post(b.address(), 10, kGlobal, 2, mr->rkey), EINVAL);
    EXPECT_EQ(flush(b.address(), 10, kGlobal, kRange), IBV_WC_SUCCESS) << "nothing was posted before";
}

TEST_F(Flush, IsReportedByTheDevice) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(a.context, nullptr, &attr), 0);
    EXPECT_EQ(attr.device_cap_flags_ex >> 38 & 7, 0b101u) << "FLUSH_GLOBAL and ATOMIC_WRITE, but not FLUSH_PERSISTENT";
}

}  // namespace
}  // namespace verbs_test
