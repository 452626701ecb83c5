// Converts struct ibv_qp_attr and struct ibv_ah_attr to and from the structs of control messages. Templates copy the fields, so
// one list of fields serves both directions.
#include <cstring>

#include "context.hpp"

namespace roci::client {
namespace {

/// Copies a field with a cast, because messages carry enums as numbers.
template <class To, class From>
void put(To& to, const From& from) {
    to = static_cast<To>(from);
}

template <class To, class From>
void copy_cap(To& to, const From& from) {
    put(to.max_send_wr, from.max_send_wr);
    put(to.max_recv_wr, from.max_recv_wr);
    put(to.max_send_sge, from.max_send_sge);
    put(to.max_recv_sge, from.max_recv_sge);
    put(to.max_inline_data, from.max_inline_data);
}

/// Copies the fields of ibv_global_route.
template <class To, class From>
void copy_route(To& to, const From& from) {
    static_assert(sizeof to.dgid.raw == sizeof from.dgid.raw);
    std::memcpy(to.dgid.raw, from.dgid.raw, sizeof to.dgid.raw);
    put(to.flow_label, from.flow_label);
    put(to.sgid_index, from.sgid_index);
    put(to.hop_limit, from.hop_limit);
    put(to.traffic_class, from.traffic_class);
}

template <class To, class From>
void copy_address(To& to, const From& from) {
    put(to.dlid, from.dlid);
    put(to.sl, from.sl);
    put(to.src_path_bits, from.src_path_bits);
    put(to.static_rate, from.static_rate);
    put(to.is_global, from.is_global);
    put(to.port_num, from.port_num);
}

template <class To, class From>
void copy_attributes(To& to, const From& from) {
    put(to.qp_state, from.qp_state);
    put(to.cur_qp_state, from.cur_qp_state);
    put(to.path_mtu, from.path_mtu);
    put(to.path_mig_state, from.path_mig_state);
    put(to.qkey, from.qkey);
    put(to.rq_psn, from.rq_psn);
    put(to.sq_psn, from.sq_psn);
    put(to.dest_qp_num, from.dest_qp_num);
    put(to.qp_access_flags, from.qp_access_flags);
    copy_cap(to.cap, from.cap);
    put(to.pkey_index, from.pkey_index);
    put(to.alt_pkey_index, from.alt_pkey_index);
    put(to.en_sqd_async_notify, from.en_sqd_async_notify);
    put(to.sq_draining, from.sq_draining);
    put(to.max_rd_atomic, from.max_rd_atomic);
    put(to.max_dest_rd_atomic, from.max_dest_rd_atomic);
    put(to.min_rnr_timer, from.min_rnr_timer);
    put(to.port_num, from.port_num);
    put(to.timeout, from.timeout);
    put(to.retry_cnt, from.retry_cnt);
    put(to.rnr_retry, from.rnr_retry);
    put(to.alt_port_num, from.alt_port_num);
    put(to.alt_timeout, from.alt_timeout);
    put(to.rate_limit, from.rate_limit);
}

ibv_ah_attr from_abi(const abi::AhAttr& a) {
    ibv_ah_attr out{};
    copy_address(out, a);
    copy_route(out.grh, a);
    return out;
}

}  // namespace

abi::AhAttr to_abi(const ibv_ah_attr& a) {
    abi::AhAttr out{};
    copy_address(out, a);
    copy_route(out, a.grh);
    return out;
}

abi::QpAttr to_abi(const ibv_qp_attr& a) {
    abi::QpAttr out{};
    copy_attributes(out, a);
    out.ah = to_abi(a.ah_attr);
    out.alt_ah = to_abi(a.alt_ah_attr);
    return out;
}

void from_abi(const abi::QpAttr& a, ibv_qp_attr& out) {
    out = {};
    copy_attributes(out, a);
    out.ah_attr = from_abi(a.ah);
    out.alt_ah_attr = from_abi(a.alt_ah);
}

}  // namespace roci::client
