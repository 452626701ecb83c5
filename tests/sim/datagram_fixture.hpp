// Fixtures with a pair of UD or UC queue pairs.
#pragma once

#include "fixture.hpp"

namespace roci::sim {

inline constexpr uint32_t kQkey = 0x11111111;

struct UdTest : PairTest {
    Qp& ua = a.qp({.type = IBV_QPT_UD});
    Qp& ub = b.qp({.type = IBV_QPT_UD});
    uint32_t ah = 0;
    static void ready(Side& s, Qp& q, uint32_t qkey) {
        abi::QpAttr t{};
        t.qp_state = IBV_QPS_INIT;
        t.port_num = 1;
        t.qkey = qkey;
        ASSERT_EQ(s.client.try_modify(q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, t), 0)
            << s.client.reason();
        s.client.to_state(q, IBV_QPS_RTR);
        t.qp_state = IBV_QPS_RTS;
        t.sq_psn = 7;
        ASSERT_EQ(s.client.try_modify(q, IBV_QP_STATE | IBV_QP_SQ_PSN, t), 0) << s.client.reason();
    }
    void SetUp() override {
        ready(a, ua, kQkey);
        ready(b, ub, kQkey);
        ah = a.client.create_ah(a.pd, b.client.self(ub));
    }
    SendWr datagram(uint64_t id, uint32_t bytes, uint32_t qkey = kQkey) {
        SendWr w = a.send(id, 0, bytes);
        w.ah = ah;
        w.remote_qpn = ub.qpn;
        w.remote_qkey = qkey;
        return w;
    }
};

struct UcTest : PairTest {
    Qp& ua = a.qp({.type = IBV_QPT_UC});
    Qp& ub = b.qp({.type = IBV_QPT_UC});
    static void ready(Side& s, Qp& q, const Peer& peer) {
        s.client.to_init(q, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        abi::QpAttr t{};
        t.qp_state = IBV_QPS_RTR;
        t.path_mtu = IBV_MTU_1024;
        t.dest_qp_num = peer.qpn;
        t.rq_psn = t.sq_psn = 0xfffff0;
        std::memcpy(t.ah.dgid.raw, peer.gid.bytes.data(), 16);
        std::memcpy(t.ah.dmac, peer.mac.bytes.data(), 6);
        t.ah.is_global = t.ah.port_num = 1;
        t.ah.hop_limit = 64;
        ASSERT_EQ(s.client.try_modify(q, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, t), 0)
            << s.client.reason();
        t.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(s.client.try_modify(q, IBV_QP_STATE | IBV_QP_SQ_PSN, t), 0) << s.client.reason();
    }
    void SetUp() override {
        ready(a, ua, b.client.self(ub));
        ready(b, ub, a.client.self(ua));
    }
};

}  // namespace roci::sim
