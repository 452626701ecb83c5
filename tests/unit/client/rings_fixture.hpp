// A fixture with a QP and its CQ. It gives a test rocid's view of the rings of both objects.
#pragma once

#include "fixture.hpp"

namespace roci::test {

class Rings : public Client {
protected:
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_send_wr* bad = nullptr;
    ibv_recv_wr* bad_recv = nullptr;
    char data[128] = "some payload that is longer than one would think";
    ibv_sge sge[4] = {{uint64_t(uintptr_t(data)), 10, 0x11},
                      {uint64_t(uintptr_t(data + 20)), 0, 0x22},
                      {uint64_t(uintptr_t(data + 30)), 7, 0x33},
                      {}};

    void SetUp() override {
        Client::SetUp();
        cq = make_cq();
        qp = make_qp(cq);
        ASSERT_NE(qp, nullptr);
    }
    void TearDown() override {
        if (qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        Client::TearDown();
    }
    FakeRocid::Qp& seen() { return rocid.qp(qp->handle); }
    const abi::SendWqe& wqe(uint32_t i) { return rocid.send_wqe(qp->handle, i); }
    int post(ibv_send_wr wr) { return ibv_post_send(qp, &wr, &bad); }
    void replace_qp(ibv_qp_type type) {
        ASSERT_EQ(ibv_destroy_qp(qp), 0);
        qp = make_qp(cq, type);
        ASSERT_NE(qp, nullptr);
    }
    ibv_wc poll_one() {
        ibv_wc wc{};
        EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
        return wc;
    }
};

}  // namespace roci::test
