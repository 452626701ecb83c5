// Tests of the transports RC, UC, UD and XRC.
#include <fcntl.h>
#include <sys/wait.h>
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
    ASSERT_EQ(a->send(1, 0, 3000), 0);  // no receive is posted: the message is lost, and the sender does not know
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
    ibv_ah_attr back{};  // the GRH contains the address of the sender
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
    if (send_to(3, 0, mtu + 1, kQkey) == 0) {  // a device may refuse the request in the call, or complete it with an error
        EXPECT_NE(a->poll().status, IBV_WC_SUCCESS);
    }
}

/// A program may destroy the address handle at once, because a NIC copies the address at the post. 1000 full datagrams take
/// longer to send than the calls that destroy the handle.
TEST_F(Transports, AnAddressHandleMayBeDestroyedAfterThePost) {
    constexpr uint64_t kMany = 1000;
    Shape ud;
    ud.type = IBV_QPT_UD;
    ud.send_wr = 1024;
    ud.cqe = 1024;
    connect(ud);
    ibv_ah_attr attr = End::address_of(*b);
    ibv_ah* ah = ibv_create_ah(a->pd, &attr);
    ASSERT_NE(ah, nullptr);
    for (uint64_t id = 0; id < kMany; ++id) {
        ASSERT_EQ(a->post(IBV_WR_SEND, id, 0, 1024, [&](ibv_send_wr& wr) { wr.wr.ud = {ah, b->qp->qp_num, kQkey}; }), 0);
    }
    ASSERT_EQ(ibv_destroy_ah(ah), 0);
    for (uint64_t id = 0; id < kMany; ++id) {
        const ibv_wc wc = a->poll();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << id;
        ASSERT_EQ(wc.wr_id, id);
    }
}

/// Tests of IBV_DEVICE_UD_IP_CSUM. The IPv4 packets are behind the 4-byte header of IP over InfiniBand (RFC 4391).
class Checksums : public Datagram {
protected:
    void SetUp() override {
        Datagram::SetUp();
        ibv_device_attr attr{};
        ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
        if ((attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM) == 0) GTEST_SKIP() << "no checksum offload";
        static constexpr uint8_t kUdpPacket[] = {0x08, 0,  0,  0, 0x45, 0,   0,   37,  0,   0,   0x40, 0,    64,   17,
                                                 0,    0,  10, 0, 0,    1,   10,  0,   0,   2,   0x10, 0x00, 0x20, 0x00,
                                                 0,    17, 0,  0, 'n',  'i', 'n', 'e', ' ', 'b', 'y',  't',  'e'};
        std::memcpy(a->memory.data(), kUdpPacket, kBytes);
        static_assert(sizeof kUdpPacket == kBytes);
    }
    /// Sends a datagram with the flags `extra_flags`. Returns the flags of b's completion.
    unsigned deliver(unsigned extra_flags) {
        EXPECT_EQ(b->receive(1, 0, 1024), 0);
        EXPECT_EQ(a->post(IBV_WR_SEND, 2, 0, kBytes,
                          [&](ibv_send_wr& wr) {
                              wr.wr.ud = {ah, b->qp->qp_num, kQkey};
                              wr.send_flags |= extra_flags;
                          }),
                  0);
        EXPECT_DONE(*a, 2);
        const ibv_wc wc = b->poll();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        return wc.wc_flags;
    }
    static constexpr size_t kBytes = 41, kIp = 4;
};

TEST_F(Checksums, AreFilledInAndVerified) {
    EXPECT_NE(deliver(IBV_SEND_IP_CSUM) & IBV_WC_IP_CSUM_OK, 0u);
    const uint8_t* ip = b->memory.data() + kGrh + kIp;
    EXPECT_EQ(ip[10] << 8 | ip[11], 0x26c6) << "of the header";
    EXPECT_NE(ip[20 + 6] << 8 | ip[20 + 7], 0) << "of UDP";
    EXPECT_EQ(std::memcmp(ip + 20 + 8, "nine byte", 9), 0);
    EXPECT_EQ(a->memory[kIp + 10], 0) << "the program's own memory is as it was";
}

TEST_F(Checksums, AWrongOneIsNotSaidToBeRight) {
    EXPECT_EQ(deliver(0) & IBV_WC_IP_CSUM_OK, 0u) << "they are zero";
    a->memory[0] = 0x12;  // the header no longer has the type of IPv4, so the packet must not be changed
    EXPECT_EQ(deliver(IBV_SEND_IP_CSUM) & IBV_WC_IP_CSUM_OK, 0u);
    EXPECT_TRUE(same(*a, 0, *b, kGrh, kBytes));
}

TEST_F(Transports, ChecksumsAreOfDatagramsOnly) {
    ibv_device_attr attr{};
    ASSERT_EQ(ibv_query_device(a->context, &attr), 0);
    if ((attr.device_cap_flags & IBV_DEVICE_RC_IP_CSUM) != 0) GTEST_SKIP() << "this device has more";
    connect();
    EXPECT_EQ(a->post(IBV_WR_SEND, 1, 0, 64, [](ibv_send_wr& wr) { wr.send_flags |= IBV_SEND_IP_CSUM; }), EINVAL);
}

ibv_qp* open_target(ibv_context* context, ibv_xrcd* domain, uint32_t number, ibv_qp_type type = IBV_QPT_XRC_RECV) {
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = domain;
    attr.qp_type = type;
    return ibv_open_qp(context, &attr);
}

/// a has an XRC initiator. b has an XRC target and an SRQ in the same XRC domain.
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
        srq = make_srq(*b, xrcd);
        ASSERT_NE(srq, nullptr);
        ASSERT_EQ(ibv_get_srq_num(srq, &srqn), 0);
    }
    static ibv_srq* make_srq(const End& end, ibv_xrcd* domain) {
        ibv_srq_init_attr_ex attr{};
        attr.attr = {32, 2, 0};
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        attr.srq_type = IBV_SRQT_XRC;
        attr.pd = end.pd;
        attr.xrcd = domain;
        attr.cq = end.cq;
        return ibv_create_srq_ex(end.context, &attr);
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
    /// Runs in the child process. Creates an SRQ of the child in the domain and opens the target. Returns 0 after the
    /// message has arrived, or the number of the failed step.
    int serve_in_child(int tell, int wait) {
        End own(1);
        if (own.context == nullptr || own.mr == nullptr) return 1;
        ibv_xrcd* domain = open_domain(own.context, file, 0);
        if (domain == nullptr) return 2;
        ibv_qp* opened = open_target(own.context, domain, target->qp_num);
        if (opened == nullptr) return 3;
        own.cq = ibv_create_cq(own.context, 16, nullptr, nullptr, 0);
        ibv_srq* queue = make_srq(own, domain);
        uint32_t number = 0;
        if (queue == nullptr || ibv_get_srq_num(queue, &number) != 0) return 4;
        ibv_sge s = own.sge(0, 64);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.sg_list = &s;
        wr.num_sge = 1;
        if (ibv_post_srq_recv(queue, &wr, &bad) != 0 || write(tell, &number, sizeof number) < 0) return 5;
        const ibv_wc wc = own.poll();
        if (wc.status != IBV_WC_SUCCESS || wc.byte_len != 18) return 6;
        if (std::memcmp(own.memory.data(), "to another process", 18) != 0) return 7;
        char go;
        if (read(wait, &go, 1) != 1) return 8;  // after this byte the sender has received its acknowledgement
        return ibv_destroy_qp(opened) != 0 || ibv_destroy_srq(queue) != 0 || ibv_close_xrcd(domain) != 0 ? 9 : 0;
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

/// Sets all attributes of RC on both the initiator and the target, as perftest does. Each of the two must ignore the
/// attributes that it does not use.
TEST_F(Xrc, AttributesOfTheOtherHalfAreIgnored) {
    for (End* end : {a.get(), b.get()}) {
        ibv_qp* qp = end == a.get() ? a->qp : target;
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
        ASSERT_EQ(end->to_init(qp), 0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = end == a.get() ? target->qp_num : a->qp->qp_num;
        attr.ah_attr = End::address_of(end == a.get() ? *b : *a);
        attr.max_dest_rd_atomic = 4;
        attr.min_rnr_timer = 1;
        EXPECT_EQ(ibv_modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                  0);
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 12;
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.max_rd_atomic = 4;
        EXPECT_EQ(ibv_modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    ASSERT_EQ(post_srq(1, 4096, 64), 0);
    ASSERT_EQ(send(2, 64, srqn), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_DONE(*b, 1);
}

TEST_F(Xrc, AnOpenedTargetOutlivesItsCreator) {
    ibv_context* other = open_device(1);
    ASSERT_NE(other, nullptr);
    ibv_xrcd* domain = open_domain(other, file, 0);
    ASSERT_NE(domain, nullptr);
    EXPECT_EQ(open_target(other, domain, target->qp_num, IBV_QPT_RC), nullptr);
    EXPECT_EQ(open_target(other, domain, a->qp->qp_num), nullptr) << "no target";
    ibv_qp* opened = open_target(other, domain, target->qp_num);
    ASSERT_NE(opened, nullptr);
    EXPECT_EQ(opened->qp_num, target->qp_num);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(opened, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTR);
    EXPECT_EQ(ibv_close_xrcd(domain), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    target = nullptr;
    ASSERT_EQ(post_srq(1, 4096, 64), 0);
    ASSERT_EQ(send(2, 64, srqn), 0);
    EXPECT_DONE(*a, 2);
    EXPECT_DONE(*b, 1);
    EXPECT_EQ(ibv_destroy_qp(opened), 0);
    a->fill(0, 8, 1);
    ASSERT_EQ(send(3, 64, srqn), 0);
    EXPECT_EQ(a->poll().status, IBV_WC_RETRY_EXC_ERR) << "it ended with its last handle";
    EXPECT_EQ(ibv_close_xrcd(domain), 0);
    EXPECT_EQ(ibv_close_device(other), 0);
}

/// A process receives through a target that another process has connected. This is the purpose of XRC.
TEST_F(Xrc, ATargetServesAnotherProcess) {
    int up[2], down[2];
    ASSERT_EQ(pipe(up), 0);
    ASSERT_EQ(pipe(down), 0);
    const pid_t child = fork();
    if (child == 0) _exit(serve_in_child(up[1], down[0]));
    uint32_t number = 0;
    ASSERT_EQ(read(up[0], &number, sizeof number), ssize_t(sizeof number));
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    target = nullptr;
    std::memcpy(a->memory.data(), "to another process", 18);
    ASSERT_EQ(send(1, 18, number), 0);
    EXPECT_DONE(*a, 1);
    ASSERT_EQ(write(down[1], "x", 1), 1);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "its exit code tells the step that failed: " << WEXITSTATUS(status);
    for (const int fd : {up[0], up[1], down[0], down[1]}) close(fd);
}

TEST_F(Xrc, ADomainInUseStays) { EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY); }

}  // namespace
}  // namespace verbs_test
