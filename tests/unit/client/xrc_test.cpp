// Tests of opening an XRC target QP that another session has created.
#include <fcntl.h>

#include "fixture.hpp"

namespace roci::test {
namespace {

TEST_F(Client, OpeningATargetNeedsItsNumberItsTypeAndItsDomain) {
    ibv_qp_open_attr open{};
    open.qp_num = 0x123;
    open.qp_type = IBV_QPT_XRC_RECV;
    open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
    errno = 0;
    EXPECT_EQ(ibv_open_qp(context, &open), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_xrcd_init_attr none{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    open.xrcd = ibv_open_xrcd(context, &none);
    ASSERT_NE(open.xrcd, nullptr);
    open.qp_context = this;
    open.comp_mask |= IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT;
    ibv_qp* qp = ibv_open_qp(context, &open);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(rocid.last_as<abi::OpenQpRequest>(abi::Op::open_qp).qpn, 0x123u);
    EXPECT_EQ(qp->qp_num, 0x123u);
    EXPECT_EQ(qp->qp_context, this);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    open.comp_mask |= 1 << 20;
    EXPECT_EQ(ibv_open_qp(context, &open), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_close_xrcd(open.xrcd), 0);
}

}  // namespace
}  // namespace roci::test
