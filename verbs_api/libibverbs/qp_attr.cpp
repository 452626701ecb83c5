// struct ibv_qp_attr and ibv_ah_attr as messages carry them.
#include <cstring>

#include "context.hpp"

namespace roci::client {
namespace {

abi::QpCap to_abi(const ibv_qp_cap& c) {
    return {c.max_send_wr, c.max_recv_wr, c.max_send_sge, c.max_recv_sge, c.max_inline_data, 0};
}

ibv_ah_attr from_abi(const abi::AhAttr& a) {
    ibv_ah_attr out{};
    std::memcpy(out.grh.dgid.raw, a.dgid.raw, sizeof out.grh.dgid.raw);
    out.grh.flow_label = a.flow_label;
    out.grh.sgid_index = a.sgid_index;
    out.grh.hop_limit = a.hop_limit;
    out.grh.traffic_class = a.traffic_class;
    out.dlid = a.dlid;
    out.sl = a.sl;
    out.src_path_bits = a.src_path_bits;
    out.static_rate = a.static_rate;
    out.is_global = a.is_global;
    out.port_num = a.port_num;
    return out;
}

}  // namespace

abi::AhAttr to_abi(const ibv_ah_attr& a) {
    abi::AhAttr out{};
    std::memcpy(out.dgid.raw, a.grh.dgid.raw, sizeof out.dgid.raw);
    out.flow_label = a.grh.flow_label;
    out.sgid_index = a.grh.sgid_index;
    out.hop_limit = a.grh.hop_limit;
    out.traffic_class = a.grh.traffic_class;
    out.dlid = a.dlid;
    out.sl = a.sl;
    out.src_path_bits = a.src_path_bits;
    out.static_rate = a.static_rate;
    out.is_global = a.is_global;
    out.port_num = a.port_num;
    return out;
}

abi::QpAttr to_abi(const ibv_qp_attr& a) {
    abi::QpAttr out{};
    out.qp_state = a.qp_state;
    out.cur_qp_state = a.cur_qp_state;
    out.path_mtu = a.path_mtu;
    out.path_mig_state = a.path_mig_state;
    out.qkey = a.qkey;
    out.rq_psn = a.rq_psn;
    out.sq_psn = a.sq_psn;
    out.dest_qp_num = a.dest_qp_num;
    out.qp_access_flags = a.qp_access_flags;
    out.cap = to_abi(a.cap);
    out.ah = to_abi(a.ah_attr);
    out.alt_ah = to_abi(a.alt_ah_attr);
    out.pkey_index = a.pkey_index;
    out.alt_pkey_index = a.alt_pkey_index;
    out.en_sqd_async_notify = a.en_sqd_async_notify;
    out.sq_draining = a.sq_draining;
    out.max_rd_atomic = a.max_rd_atomic;
    out.max_dest_rd_atomic = a.max_dest_rd_atomic;
    out.min_rnr_timer = a.min_rnr_timer;
    out.port_num = a.port_num;
    out.timeout = a.timeout;
    out.retry_cnt = a.retry_cnt;
    out.rnr_retry = a.rnr_retry;
    out.alt_port_num = a.alt_port_num;
    out.alt_timeout = a.alt_timeout;
    out.rate_limit = a.rate_limit;
    return out;
}

void from_abi(const abi::QpAttr& a, ibv_qp_attr& out) {
    out = {};
    out.qp_state = ibv_qp_state(a.qp_state);
    out.cur_qp_state = ibv_qp_state(a.cur_qp_state);
    out.path_mtu = ibv_mtu(a.path_mtu);
    out.path_mig_state = ibv_mig_state(a.path_mig_state);
    out.qkey = a.qkey;
    out.rq_psn = a.rq_psn;
    out.sq_psn = a.sq_psn;
    out.dest_qp_num = a.dest_qp_num;
    out.qp_access_flags = a.qp_access_flags;
    out.cap = {a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data};
    out.ah_attr = from_abi(a.ah);
    out.alt_ah_attr = from_abi(a.alt_ah);
    out.pkey_index = a.pkey_index;
    out.alt_pkey_index = a.alt_pkey_index;
    out.en_sqd_async_notify = a.en_sqd_async_notify;
    out.sq_draining = a.sq_draining;
    out.max_rd_atomic = a.max_rd_atomic;
    out.max_dest_rd_atomic = a.max_dest_rd_atomic;
    out.min_rnr_timer = a.min_rnr_timer;
    out.port_num = a.port_num;
    out.timeout = a.timeout;
    out.retry_cnt = a.retry_cnt;
    out.rnr_retry = a.rnr_retry;
    out.alt_port_num = a.alt_port_num;
    out.alt_timeout = a.alt_timeout;
    out.rate_limit = a.rate_limit;
}

}  // namespace roci::client
