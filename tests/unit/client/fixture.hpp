// An open device of a FakeRocid, with helpers that create objects on it.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "fake_rocid.hpp"

namespace roci::test {

class Client : public ::testing::Test {
protected:
    FakeRocid rocid;
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;

    void SetUp() override {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        ASSERT_EQ(count, 1);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        ASSERT_NE(pd, nullptr);
    }
    void TearDown() override {
        if (pd != nullptr) {
            EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        }
        if (context != nullptr) {
            EXPECT_EQ(ibv_close_device(context), 0);
        }
    }

    ibv_cq* make_cq(int cqe = 8, ibv_comp_channel* channel = nullptr) { return ibv_create_cq(context, cqe, this, channel, 0); }
    ibv_qp_init_attr qp_attr(ibv_cq* cq, ibv_qp_type type = IBV_QPT_RC) {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = cq;
        a.cap = {4, 4, 3, 2, 32};
        a.qp_type = type;
        return a;
    }
    void set_state(ibv_qp* qp, ibv_qp_state state) {
        ibv_qp_attr a{};
        a.qp_state = state;
        ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    }
    ibv_qp* make_qp(ibv_cq* cq, ibv_qp_type type = IBV_QPT_RC, ibv_qp_state state = IBV_QPS_RTS, ibv_srq* srq = nullptr) {
        ibv_qp_init_attr a = qp_attr(cq, type);
        a.srq = srq;
        ibv_qp* qp = ibv_create_qp(pd, &a);
        if (qp != nullptr && state != IBV_QPS_RESET) set_state(qp, state);
        return qp;
    }
    static abi::Cqe entry(const ibv_qp* qp, abi::CqeQueue queue, uint64_t wr_id, uint32_t wqe_index = 0) {
        abi::Cqe e{};
        e.qpn = qp->qp_num;
        e.queue = queue;
        e.wr_id = wr_id;
        e.wqe_index = wqe_index;
        e.opcode = queue == abi::kCqeSend ? abi::WcOpcode::send : abi::WcOpcode::recv;
        return e;
    }
    static ibv_send_wr send_wr(uint64_t wr_id, ibv_sge* sge = nullptr, int count = 0) {
        ibv_send_wr wr{};
        wr.wr_id = wr_id;
        wr.sg_list = sge;
        wr.num_sge = count;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        return wr;
    }
};

}  // namespace roci::test
