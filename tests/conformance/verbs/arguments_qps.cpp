// Wrong arguments of the verbs that create, modify and destroy QPs, and of multicast verbs.
#include "arguments.hpp"

namespace verbs_test {
namespace {

using enum Way;

template <class F>
Got create(Stage& s, F spoil) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = s.a.cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {16, 16, 2, 2, 32};
    spoil(s, attr);
    return made(ibv_create_qp(s.a.pd, &attr), ibv_destroy_qp);
}

template <class F>
Got create_ex(Stage& s, F spoil) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = s.a.cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {16, 16, 2, 2, 32};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    attr.pd = s.a.pd;
    spoil(attr);
    return made(ibv_create_qp_ex(s.a.context, &attr), ibv_destroy_qp);
}

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                     IBV_QP_MIN_RNR_TIMER;
constexpr int kRts =
    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

ibv_qp_attr to_rtr(const Stage& s) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = s.b.qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = End::address_of(s.b);
    return attr;
}

// Each of init(), rtr() and rts() tries one transition. The QP is in the state before this transition.
template <class F>
Got init(Stage& s, int mask, F spoil) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kFullAccess;
    spoil(attr);
    return returned(ibv_modify_qp(s.reset, &attr, mask));
}
template <class F>
Got rtr(Stage& s, int mask, F spoil) {
    ibv_qp_attr attr = to_rtr(s);
    spoil(attr, s.device);
    return returned(ibv_modify_qp(s.init, &attr, mask));
}
template <class F>
Got rts(Stage& s, int mask, F spoil) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 12;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    spoil(attr, s.device);
    return returned(ibv_modify_qp(s.rtr, &attr, mask));
}
Got step(ibv_qp* qp, ibv_qp_state state, int mask = IBV_QP_STATE) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.cur_qp_state = IBV_QPS_RTR;
    return returned(ibv_modify_qp(qp, &attr, mask));
}
constexpr auto kAsIs = [](auto&&...) {};

constexpr const char *kNotChecked = "the driver does not check it", *kNoXrc = "it has no XRC";

const Row kRows[] = {
    // ---- create ----
    {"create_qp", "no CQs", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage&, auto& x) { x.send_cq = x.recv_cq = nullptr; }); }, kSkip,
     "its library reads the CQs' handles"},
    {"create_qp", "an unknown type", negative, EOPNOTSUPP,
     [](Stage& s) { return create(s, [](Stage&, auto& x) { x.qp_type = number<ibv_qp_type>(77); }); }, EINVAL,
     "the kernel's uverbs refuse it first"},
    {"create_qp", "too deep a send queue", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage& t, auto& x) { x.cap.max_send_wr = uint32_t(t.device.max_qp_wr) + 1; }); }},
    {"create_qp", "too deep a receive queue", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage& t, auto& x) { x.cap.max_recv_wr = uint32_t(t.device.max_qp_wr) + 1; }); }},
    {"create_qp", "too many SGEs to send", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage& t, auto& x) { x.cap.max_send_sge = uint32_t(t.device.max_sge) + 1; }); }},
    {"create_qp", "too many SGEs to receive", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage& t, auto& x) { x.cap.max_recv_sge = uint32_t(t.device.max_sge) + 1; }); }},
    {"create_qp", "too much inline data", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage&, auto& x) { x.cap.max_inline_data = 1 << 20; }); }},
    {"create_qp", "another open device's CQ", negative, EINVAL,
     [](Stage& s) { return create(s, [](Stage& t, auto& x) { x.send_cq = t.b.cq; }); }, kSkip, "its handle means another CQ"},
    {"create_qp_ex", "unknown attributes", negative, EOPNOTSUPP,
     [](Stage& s) { return create_ex(s, [](auto& x) { x.comp_mask |= 1u << 30; }); }},
    {"create_qp_ex", "an operation of another transport", negative, EOPNOTSUPP,
     [](Stage& s) {
         return create_ex(s, [](auto& x) {
             x.qp_type = IBV_QPT_UD;
             x.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
         });
     }},
    {"create_qp_ex", "no PD", negative, EINVAL,
     [](Stage& s) {
         return create_ex(s, [](auto& x) {
             x.comp_mask &= ~uint32_t(IBV_QP_INIT_ATTR_PD);
             x.pd = nullptr;
         });
     },
     kSkip, "its library reads the PD"},
    {"open_qp", "no attributes", negative, EINVAL,
     [](Stage& s) {
         ibv_qp_open_attr attr{};
         return made(ibv_open_qp(s.a.context, &attr), ibv_destroy_qp);
     },
     kSkip, kNoXrc},
    // ---- RESET to INIT ----
    {"modify_qp", "INIT: no port", value, EINVAL, [](Stage& s) { return init(s, kInit & ~IBV_QP_PORT, kAsIs); }},
    {"modify_qp", "INIT: no P_Key index", value, EINVAL, [](Stage& s) { return init(s, kInit & ~IBV_QP_PKEY_INDEX, kAsIs); }},
    {"modify_qp", "INIT: no rights", value, EINVAL, [](Stage& s) { return init(s, kInit & ~IBV_QP_ACCESS_FLAGS, kAsIs); }},
    {"modify_qp", "INIT: a Q_Key for RC", value, EINVAL, [](Stage& s) { return init(s, kInit | IBV_QP_QKEY, kAsIs); }},
    {"modify_qp", "INIT: port 0", value, EINVAL, [](Stage& s) { return init(s, kInit, [](auto& x) { x.port_num = 0; }); }},
    {"modify_qp", "INIT: a port that is not there", value, EINVAL,
     [](Stage& s) { return init(s, kInit, [](auto& x) { x.port_num = 9; }); }},
    {"modify_qp", "INIT: a P_Key index that is not there", value, EINVAL,
     [](Stage& s) { return init(s, kInit, [](auto& x) { x.pkey_index = 99; }); }, kSkip, kNotChecked},
    {"modify_qp", "a state that is none", value, EINVAL,
     [](Stage& s) { return init(s, kInit, [](auto& x) { x.qp_state = number<ibv_qp_state>(9); }); }},
    {"modify_qp", "RESET to RTR", value, EINVAL,
     [](Stage& s) {
         ibv_qp_attr attr = to_rtr(s);
         return returned(ibv_modify_qp(s.reset, &attr, kRtr));
     }},
    {"modify_qp", "RESET to RTS", value, EINVAL, [](Stage& s) { return step(s.reset, IBV_QPS_RTS, kRts); }},
    {"modify_qp", "RESET to SQD", value, EINVAL, [](Stage& s) { return step(s.reset, IBV_QPS_SQD); }},
    // ---- INIT to RTR ----
    {"modify_qp", "RTR: no address", value, EINVAL, [](Stage& s) { return rtr(s, kRtr & ~IBV_QP_AV, kAsIs); }},
    {"modify_qp", "RTR: no path MTU", value, EINVAL, [](Stage& s) { return rtr(s, kRtr & ~IBV_QP_PATH_MTU, kAsIs); }},
    {"modify_qp", "RTR: no peer", value, EINVAL, [](Stage& s) { return rtr(s, kRtr & ~IBV_QP_DEST_QPN, kAsIs); }},
    {"modify_qp", "RTR: no PSN", value, EINVAL, [](Stage& s) { return rtr(s, kRtr & ~IBV_QP_RQ_PSN, kAsIs); }},
    {"modify_qp", "RTR: no RNR timer", value, EINVAL, [](Stage& s) { return rtr(s, kRtr & ~IBV_QP_MIN_RNR_TIMER, kAsIs); }},
    {"modify_qp", "RTR: a timeout", value, EINVAL, [](Stage& s) { return rtr(s, kRtr | IBV_QP_TIMEOUT, kAsIs); }},
    {"modify_qp", "RTR: an alternate path", value, EINVAL, [](Stage& s) { return rtr(s, kRtr | IBV_QP_ALT_PATH, kAsIs); }},
    {"modify_qp", "RTR: path MTU 0", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.path_mtu = number<ibv_mtu>(0); }); }, kSkip, kNotChecked},
    {"modify_qp", "RTR: a path MTU that is none", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.path_mtu = number<ibv_mtu>(6); }); }},
    {"modify_qp", "RTR: an RNR timer of 32", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.min_rnr_timer = 32; }); }, kSkip, "it uses the low five bits"},
    {"modify_qp", "RTR: more READs than the device answers", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto& d) { x.max_dest_rd_atomic = uint8_t(d.max_qp_rd_atom + 1); }); }, kSkip,
     kNotChecked},
    {"modify_qp", "RTR: no GRH", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.ah_attr.is_global = 0; }); }},
    {"modify_qp", "RTR: an address on port 9", value, EINVAL,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.ah_attr.port_num = 9; }); }},
    {"modify_qp", "RTR: an empty GID index", value, ENODATA,
     [](Stage& s) { return rtr(s, kRtr, [](auto& x, auto&) { x.ah_attr.grh.sgid_index = 15; }); }},
    {"modify_qp", "RTR: a multicast address", value, EINVAL,
     [](Stage& s) {
         return rtr(s, kRtr, [](auto& x, auto&) {
             x.ah_attr.grh.dgid = {};
             x.ah_attr.grh.dgid.raw[0] = 0xff;
         });
     },
     kSkip, kNotChecked},
    {"modify_qp", "INIT to RTS", value, EINVAL, [](Stage& s) { return step(s.init, IBV_QPS_RTS, kRts); }},
    // ---- RTR to RTS ----
    {"modify_qp", "RTS: no timeout", value, EINVAL, [](Stage& s) { return rts(s, kRts & ~IBV_QP_TIMEOUT, kAsIs); }},
    {"modify_qp", "RTS: no retry count", value, EINVAL, [](Stage& s) { return rts(s, kRts & ~IBV_QP_RETRY_CNT, kAsIs); }},
    {"modify_qp", "RTS: no PSN", value, EINVAL, [](Stage& s) { return rts(s, kRts & ~IBV_QP_SQ_PSN, kAsIs); }},
    {"modify_qp", "RTS: another current state", value, EINVAL,
     [](Stage& s) { return rts(s, kRts | IBV_QP_CUR_STATE, [](auto& x, auto&) { x.cur_qp_state = IBV_QPS_RTS; }); }},
    {"modify_qp", "RTS: a timeout of 32", value, EINVAL,
     [](Stage& s) { return rts(s, kRts, [](auto& x, auto&) { x.timeout = 32; }); }},
    {"modify_qp", "RTS: a retry count of 8", value, EINVAL,
     [](Stage& s) { return rts(s, kRts, [](auto& x, auto&) { x.retry_cnt = 8; }); }, kSkip, "it accepts any count"},
    {"modify_qp", "RTS: an RNR retry count of 8", value, EINVAL,
     [](Stage& s) { return rts(s, kRts, [](auto& x, auto&) { x.rnr_retry = 8; }); }, kSkip, "it accepts any count"},
    {"modify_qp", "RTS: more READs than the device asks", value, EINVAL,
     [](Stage& s) { return rts(s, kRts, [](auto& x, auto& d) { x.max_rd_atomic = uint8_t(d.max_qp_init_rd_atom + 1); }); }},
    {"modify_qp", "RTR to SQD", value, EINVAL, [](Stage& s) { return step(s.rtr, IBV_QPS_SQD); }},
    {"modify_qp", "RTR to INIT", value, EINVAL, [](Stage& s) { return step(s.rtr, IBV_QPS_INIT); }},
    // ---- RTS ----
    {"modify_qp", "RTS to INIT", value, EINVAL, [](Stage& s) { return step(s.a.qp, IBV_QPS_INIT); }},
    {"modify_qp", "RTS to RTR", value, EINVAL, [](Stage& s) { return step(s.a.qp, IBV_QPS_RTR); }},
    {"modify_qp", "RTS to SQE", value, EINVAL, [](Stage& s) { return step(s.a.qp, IBV_QPS_SQE); }},
    {"modify_qp", "RTS: a PSN without a new state", value, EINVAL,
     [](Stage& s) { return step(s.a.qp, IBV_QPS_RTS, IBV_QP_SQ_PSN); }},
    {"modify_qp", "RTS: another capacity", value, EINVAL, [](Stage& s) { return step(s.a.qp, IBV_QPS_RTS, IBV_QP_CAP); }},
    {"modify_qp", "UD: rights", value, EINVAL, [](Stage& s) { return step(s.ud, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS); }},
    {"modify_qp", "UD: an address", value, EINVAL, [](Stage& s) { return step(s.ud, IBV_QPS_RTS, IBV_QP_AV); }},
    {"modify_qp", "ERR with attributes", value, EINVAL,
     [](Stage& s) { return step(s.a.qp, IBV_QPS_ERR, IBV_QP_STATE | IBV_QP_SQ_PSN); }},
    {"modify_qp", "an unknown attribute", value, EINVAL, [](Stage& s) { return step(s.a.qp, IBV_QPS_RTS, 1 << 29); }, EOPNOTSUPP,
     "the kernel's uverbs refuse unknown bits by EOPNOTSUPP"},
    // ---- multicast ----
    {"attach_mcast", "an RC QP", value, EINVAL, [](Stage& s) { return returned(ibv_attach_mcast(s.a.qp, &s.group, 0)); }},
    {"attach_mcast", "no multicast address", value, EINVAL,
     [](Stage& s) { return returned(ibv_attach_mcast(s.ud, &s.a.gid, 0)); }},
    {"detach_mcast", "a group that was not joined", value, EINVAL,
     [](Stage& s) { return returned(ibv_detach_mcast(s.ud, &s.group, 0)); }},
    {"destroy_qp", "attached to a group", value, EBUSY,
     [](Stage& s) {
         if (const int error = ibv_attach_mcast(s.ud, &s.group, 0); error != 0) return Got{-error, errno};
         const Got got = returned(ibv_destroy_qp(s.ud));
         ibv_detach_mcast(s.ud, &s.group, 0);
         return got;
     }},
};

}  // namespace

std::span<const Row> qp_rows() { return kRows; }

}  // namespace verbs_test
