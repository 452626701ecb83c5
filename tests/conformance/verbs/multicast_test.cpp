// Tests of multicast: attaching, detaching, several QPs per group, each with its own copy, and loopback on the port
// of the sender.
#include "fixture.hpp"

namespace verbs_test {
namespace {

/// Returns a multicast group. Its address family is that of the GID `own`.
ibv_gid group_for(const ibv_gid& own, uint8_t number) {
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    ibv_gid g{};
    if (std::memcmp(own.raw, kMapped, 12) == 0) {
        std::memcpy(g.raw, kMapped, 12);
        g.raw[12] = 239;
        g.raw[13] = 1;
        g.raw[14] = 2;
    } else {
        g.raw[0] = 0xff;
        g.raw[1] = 0x15;
    }
    g.raw[15] = number;
    return g;
}

class Multicast : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        ibv_device_attr attr{};
        ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
        if (attr.max_mcast_grp == 0) GTEST_SKIP() << "no multicast";
        Shape ud;
        ud.type = IBV_QPT_UD;
        connect(ud);
        group = group_for(a->gid, 7);
        ibv_ah_attr address = End::address_of(*b);
        address.grh.dgid = group;
        ah = ibv_create_ah(a->pd, &address);
        ASSERT_NE(ah, nullptr);
    }
    void TearDown() override {
        if (ah != nullptr) {
            EXPECT_EQ(ibv_destroy_ah(ah), 0);
        }
    }
    int send(uint64_t id, uint32_t length) {
        return a->post(IBV_WR_SEND, id, 0, length, [&](ibv_send_wr& wr) { wr.wr.ud = {ah, 0xffffff, kQkey}; });
    }
    ibv_gid group{};
    ibv_ah* ah = nullptr;
};

TEST_F(Multicast, ReachesWhoIsAttachedAndNobodyElse) {
    ASSERT_EQ(b->receive(1, 0, 1024), 0);
    ASSERT_EQ(send(1, 100), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_TRUE(b->quiet()) << "not attached";
    ASSERT_EQ(ibv_attach_mcast(b->qp, &group, 0), 0);
    a->fill(0, 300, 8);
    ASSERT_EQ(send(2, 300), 0);
    EXPECT_DONE(*a, 2);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 300u + kGrh);
    EXPECT_EQ(wc.src_qp, a->qp->qp_num);
    EXPECT_TRUE(same(*a, 0, *b, kGrh, 300));
    ASSERT_EQ(ibv_detach_mcast(b->qp, &group, 0), 0);
    ASSERT_EQ(b->receive(3, 0, 1024), 0);
    ASSERT_EQ(send(4, 300), 0);
    EXPECT_DONE(*a, 4);
    EXPECT_TRUE(b->quiet());
}

TEST_F(Multicast, EveryAttachedQpGetsACopyOfItsOwn) {
    constexpr int kQps = 5;
    ibv_qp* qps[kQps];
    ibv_cq* cq = ibv_create_cq(b->context, 64, nullptr, nullptr, 0);
    for (int i = 0; i < kQps; ++i) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_UD;
        attr.cap = {4, 4, 1, 1, 0};
        qps[i] = ibv_create_qp(b->pd, &attr);
        ASSERT_NE(qps[i], nullptr);
        ASSERT_EQ(b->to_init(qps[i]), 0);
        ASSERT_EQ(b->to_rtr(*a, 0, 0, qps[i]), 0);
        ASSERT_EQ(ibv_attach_mcast(qps[i], &group, 0), 0);
        ibv_sge s = b->sge(size_t(i) * 1024, 1024);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = uint64_t(i);
        wr.sg_list = &s;
        wr.num_sge = 1;
        ASSERT_EQ(ibv_post_recv(qps[i], &wr, &bad), 0);
    }
    a->fill(0, 200, 31);
    ASSERT_EQ(send(1, 200), 0);
    EXPECT_DONE(*a, 1);
    unsigned seen = 0;
    for (int i = 0; i < kQps; ++i) {
        const ibv_wc wc = End::poll(cq);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        seen |= 1u << wc.wr_id;
        EXPECT_EQ(wc.qp_num, qps[wc.wr_id]->qp_num);
        EXPECT_TRUE(same(*a, 0, *b, wc.wr_id * 1024 + kGrh, 200));
    }
    EXPECT_EQ(seen, (1u << kQps) - 1);
    for (ibv_qp* qp : qps) {
        EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Multicast, QpsOnTheSendersPortHearItToo) {
    ASSERT_EQ(ibv_attach_mcast(a->qp, &group, 0), 0);
    ASSERT_EQ(a->receive(5, 4096, 1024), 0);
    ASSERT_EQ(send(6, 64), 0);
    bool sent = false, heard = false;
    for (int i = 0; i < 2; ++i) {
        const ibv_wc wc = a->poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        sent = sent || wc.wr_id == 6;
        heard = heard || wc.wr_id == 5;
    }
    EXPECT_TRUE(sent && heard);
    EXPECT_EQ(ibv_detach_mcast(a->qp, &group, 0), 0);
}

TEST_F(Multicast, WrongUseIsRefused) {
    EXPECT_EQ(ibv_attach_mcast(b->qp, &a->gid, 0), EINVAL) << "a unicast address";
    EXPECT_EQ(ibv_detach_mcast(b->qp, &group, 0), EINVAL) << "not attached";
    ASSERT_EQ(ibv_attach_mcast(b->qp, &group, 0), 0);
    EXPECT_EQ(ibv_attach_mcast(b->qp, &group, 0), 0) << "twice is once";
    EXPECT_EQ(ibv_destroy_qp(b->qp), EBUSY);
    EXPECT_EQ(ibv_detach_mcast(b->qp, &group, 0), 0);
    Shape rc;
    ibv_qp* saved = b->qp;
    ASSERT_NE(b->create(rc), nullptr);
    EXPECT_EQ(ibv_attach_mcast(b->qp, &group, 0), EINVAL) << "not a UD QP";
    EXPECT_EQ(ibv_destroy_qp(b->qp), 0);
    b->qp = saved;
}

}  // namespace
}  // namespace verbs_test
