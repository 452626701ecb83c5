// Transports: RC, UC, UD, XRC.
#include <fcntl.h>
#include <unistd.h>

#include "fixture.hpp"

namespace verbs_test {
namespace {

class Transports : public Pair {};

TEST_F(Transports, RcMovesMessagesOfEverySizeIntact) {
    connect();
    uint64_t id = 0;
    for (uint32_t length : {1u, 3u, 1023u, 1024u, 1025u, 4096u, 30000u}) {
        a->fill(0, length, uint8_t(length));
        ASSERT_EQ(b->receive(++id, 32768, length), 0);
        ASSERT_EQ(a->send(id, 0, length), 0);
        EXPECT_DONE(*a, id);
        const ibv_wc wc = b->poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RECV);
        EXPECT_EQ(wc.byte_len, length);
        EXPECT_EQ(wc.qp_num, b->qp->qp_num);
        EXPECT_EQ(wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0u);
        EXPECT_TRUE(same(*a, 0, *b, 32768, length));
    }
}

TEST_F(Transports, RcWaitsForAReceiver) {
    connect();
    ASSERT_EQ(a->send(1, 0, 100), 0);
    EXPECT_TRUE(a->quiet());
    ASSERT_EQ(b->receive(2, 0, 100), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_DONE(*b, 2);
}

TEST_F(Transports, RcGivesUpWhenRnrRetriesAreUsedUp) {
    a->rnr_retry = 1;
    connect();
    ASSERT_EQ(a->send(1, 0, 100), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(a->state(), IBV_QPS_ERR);
}

TEST_F(Transports, UcDropsWhatNobodyReceives) {
    Shape uc;
    uc.type = IBV_QPT_UC;
    connect(uc);
    ASSERT_EQ(a->send(1, 0, 3000), 0);  // no receive posted: lost, and the sender does not know
    EXPECT_DONE(*a, 1);
    std::this_thread::sleep_for(50ms);
    a->fill(0, 3000, 9);
    ASSERT_EQ(b->receive(2, 8192, 3000), 0);
    ASSERT_EQ(a->send(3, 0, 3000), 0);
    EXPECT_DONE(*a, 3);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.wr_id, 2u);
    EXPECT_EQ(wc.byte_len, 3000u);
    EXPECT_TRUE(same(*a, 0, *b, 8192, 3000));
}

TEST_F(Transports, UcRefusesReads) {
    Shape uc;
    uc.type = IBV_QPT_UC;
    connect(uc);
    EXPECT_NE(a->read(*b, 1, 0, 8, 0), 0);
}

class Datagram : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        Shape ud;
        ud.type = IBV_QPT_UD;
        connect(ud);
        ibv_ah_attr attr = End::address_of(*b);
        ah = ibv_create_ah(a->pd, &attr);
        ASSERT_NE(ah, nullptr);
    }
    void TearDown() override {
        if (ah != nullptr) {
            EXPECT_EQ(ibv_destroy_ah(ah), 0);
        }
    }
    int send_to(uint64_t id, size_t offset, uint32_t length, uint32_t qkey) {
        return a->post(IBV_WR_SEND, id, offset, length, [&](ibv_send_wr& wr) { wr.wr.ud = {ah, b->qp->qp_num, qkey}; });
    }
    ibv_ah* ah = nullptr;
};

TEST_F(Datagram, ArrivesBehindRoomForTheGrh) {
    a->fill(0, 500, 3);
    ASSERT_EQ(b->receive(1, 0, 1024), 0);
    ASSERT_EQ(send_to(2, 0, 500, kQkey), 0);
    EXPECT_DONE(*a, 2);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 500u + kGrh);
    EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
    EXPECT_EQ(wc.src_qp, a->qp->qp_num);
    EXPECT_TRUE(same(*a, 0, *b, kGrh, 500));
    ibv_ah_attr back{};  // the GRH tells where it came from
    ibv_wc copy = wc;
    EXPECT_EQ(ibv_init_ah_from_wc(b->context, 1, &copy, reinterpret_cast<ibv_grh*>(b->memory.data()), &back), 0);
    EXPECT_EQ(std::memcmp(back.grh.dgid.raw, a->gid.raw, 16), 0);
}

TEST_F(Datagram, WithAWrongQkeyIsDropped) {
    ASSERT_EQ(b->receive(1, 0, 1024), 0);
    ASSERT_EQ(send_to(2, 0, 100, kQkey + 1), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_TRUE(b->quiet());
    ASSERT_EQ(send_to(3, 0, 100, kQkey), 0);
    EXPECT_DONE(*a, 3);
    EXPECT_DONE(*b, 1);
}

TEST_F(Datagram, IsNoLongerThanTheMtu) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(a->context, 1, &port), 0);
    const uint32_t mtu = 128u << port.active_mtu;
    ASSERT_EQ(b->receive(1, 0, mtu + uint32_t(kGrh)), 0);
    ASSERT_EQ(send_to(2, 0, mtu, kQkey), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_DONE(*b, 1);
    if (send_to(3, 0, mtu + 1, kQkey) == 0) {  // refused at once, or completed in error
        EXPECT_NE(a->poll().status, IBV_WC_SUCCESS);
    }
}

/// Initiators on one side, a target and an SRQ of the same domain on the other.
class Xrc : public Pair {
protected:
    void SetUp() override {
        Pair::SetUp();
        ibv_device_attr_ex attr{};
        ASSERT_EQ(ibv_query_device_ex(a->context, nullptr, &attr), 0);
        if ((attr.orig_attr.device_cap_flags & IBV_DEVICE_XRC) == 0) GTEST_SKIP() << "the device has no XRC";
        file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
        ASSERT_GE(file, 0);
        xrcd = open_domain(b->context, file, O_CREAT);
        ASSERT_NE(xrcd, nullptr);
        make_srq();
        make_qps();
    }
    void TearDown() override {
        if (target != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(target), 0);
        }
        if (srq != nullptr) {
            EXPECT_EQ(ibv_destroy_srq(srq), 0);
        }
        if (xrcd != nullptr) {
            EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
        }
        if (file >= 0) close(file);
    }
    static ibv_xrcd* open_domain(ibv_context* context, int fd, int flags) {
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = fd;
        attr.oflags = flags;
        return ibv_open_xrcd(context, &attr);
    }
    void make_srq() {
        b->cq = ibv_create_cq(b->context, 64, nullptr, nullptr, 0);
        ibv_srq_init_attr_ex attr{};
        attr.attr = {32, 2, 0};
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        attr.srq_type = IBV_SRQT_XRC;
        attr.pd = b->pd;
        attr.xrcd = xrcd;
        attr.cq = b->cq;
        srq = ibv_create_srq_ex(b->context, &attr);
        ASSERT_NE(srq, nullptr);
        ASSERT_EQ(ibv_get_srq_num(srq, &srqn), 0);
    }
    void make_qps() {
        ibv_qp_init_attr_ex attr{};
        attr.qp_type = IBV_QPT_XRC_RECV;
        attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = xrcd;
        target = ibv_create_qp_ex(b->context, &attr);
        ASSERT_NE(target, nullptr);
        Shape shape;
        shape.type = IBV_QPT_XRC_SEND;
        shape.recv_wr = 0;
        ASSERT_NE(a->create(shape), nullptr);
        ASSERT_EQ(a->to_init(), 0);
        ASSERT_EQ(b->to_init(target), 0);
        ASSERT_EQ(a->to_rtr(*b, target->qp_num, 200), 0);
        ASSERT_EQ(b->to_rtr(*a, a->qp->qp_num, 100, target), 0);
        ASSERT_EQ(a->to_rts(100), 0);
    }
    int post_srq(uint64_t id, size_t offset, uint32_t length) {
        ibv_sge s = b->sge(offset, length);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &s;
        wr.num_sge = 1;
        return ibv_post_srq_recv(srq, &wr, &bad);
    }
    int send(uint64_t id, uint32_t length, uint32_t to) {
        return a->post(IBV_WR_SEND, id, 0, length, [&](ibv_send_wr& wr) { wr.qp_type.xrc.remote_srqn = to; });
    }
    int file = -1;
    ibv_xrcd* xrcd = nullptr;
    ibv_srq* srq = nullptr;
    ibv_qp* target = nullptr;
    uint32_t srqn = 0;
};

TEST_F(Xrc, DeliversToTheSrqThatIsNamed) {
    a->fill(0, 2500, 5);
    ASSERT_EQ(post_srq(1, 4096, 4096), 0);
    ASSERT_EQ(send(2, 2500, srqn), 0);
    EXPECT_DONE(*a, 2);
    const ibv_wc wc = b->poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.byte_len, 2500u);
    EXPECT_TRUE(same(*a, 0, *b, 4096, 2500));
}

TEST_F(Xrc, RdmaAndAtomicsUseTheSrqsProtectionDomain) {
    const auto name = [&](ibv_send_wr& wr) {
        wr.wr.rdma = {b->address(8192), b->mr->rkey};
        wr.qp_type.xrc.remote_srqn = srqn;
    };
    a->fill(0, 3000, 1);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 1, 0, 3000, name), 0);
    EXPECT_DONE(*a, 1);
    EXPECT_TRUE(same(*a, 0, *b, 8192, 3000));
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 2, 4096, 3000, name), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_TRUE(same(*a, 4096, *b, 8192, 3000));
    const uint64_t before = 41;
    std::memcpy(b->memory.data() + 16384, &before, 8);
    ASSERT_EQ(a->post(IBV_WR_ATOMIC_CMP_AND_SWP, 3, 0, 8,
                      [&](ibv_send_wr& wr) {
                          wr.wr.atomic = {b->address(16384), 41, 42, b->mr->rkey};
                          wr.qp_type.xrc.remote_srqn = srqn;
                      }),
              0);
    EXPECT_DONE(*a, 3);
    uint64_t after = 0;
    std::memcpy(&after, b->memory.data() + 16384, 8);
    EXPECT_EQ(after, 42u);
}

TEST_F(Xrc, AnUnknownSrqIsAnInvalidRequest) {
    ASSERT_EQ(send(1, 100, srqn + 1), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Xrc, DomainsAreSharedByFile) {
    ibv_context* other = open_device(1);
    ASSERT_NE(other, nullptr);
    errno = 0;
    EXPECT_EQ(open_domain(other, file, O_CREAT | O_EXCL), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_xrcd* same_domain = open_domain(other, file, 0);
    ASSERT_NE(same_domain, nullptr);
    EXPECT_EQ(ibv_close_xrcd(same_domain), 0);
    const int fresh = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    EXPECT_EQ(open_domain(other, fresh, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    close(fresh);
    ibv_xrcd* own = open_domain(other, -1, O_CREAT);
    EXPECT_NE(own, nullptr);
    if (own != nullptr) {
        EXPECT_EQ(ibv_close_xrcd(own), 0);
    }
    EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(Xrc, ADomainInUseStays) { EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY); }

}  // namespace
}  // namespace verbs_test
