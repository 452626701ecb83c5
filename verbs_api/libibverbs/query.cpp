// Device, port and clock attributes.
#include <time.h>

#include <algorithm>
#include <cstring>

#include "abi/link_speed.hpp"
#include "context.hpp"
#include "log.hpp"
#include "newer.hpp"

namespace roci::client {
namespace {

constexpr uint16_t kNoLid = 0;  // RoCE has no LIDs (annex A16 replaces the LRH)

ibv_device_attr to_verbs(const abi::DeviceAttr& a) {
    ibv_device_attr out{};
    static_assert(sizeof out.fw_ver == sizeof a.fw_ver);
    std::memcpy(out.fw_ver, a.fw_ver, sizeof out.fw_ver);
    out.fw_ver[sizeof out.fw_ver - 1] = '\0';
    out.node_guid = a.node_guid;
    out.sys_image_guid = a.sys_image_guid;
    out.max_mr_size = a.max_mr_size;
    out.page_size_cap = a.page_size_cap;
    out.vendor_id = a.vendor_id;
    out.vendor_part_id = a.vendor_part_id;
    out.hw_ver = a.hw_ver;
    out.max_qp = int(a.max_qp);
    out.max_qp_wr = int(a.max_qp_wr);
    out.device_cap_flags = unsigned(a.device_cap_flags);
    out.max_sge = int(a.max_sge);
    out.max_sge_rd = int(a.max_sge_rd);
    out.max_cq = int(a.max_cq);
    out.max_cqe = int(a.max_cqe);
    out.max_mr = int(a.max_mr);
    out.max_pd = int(a.max_pd);
    out.max_qp_rd_atom = int(a.max_qp_rd_atom);
    out.max_res_rd_atom = int(a.max_res_rd_atom);
    out.max_qp_init_rd_atom = int(a.max_qp_init_rd_atom);
    out.atomic_cap = ibv_atomic_cap(a.atomic_cap);
    out.max_mw = int(a.max_mw);
    out.max_mcast_grp = int(a.max_mcast_grp);
    out.max_mcast_qp_attach = int(a.max_mcast_qp_attach);
    out.max_total_mcast_qp_attach = int(std::min<uint64_t>(uint64_t(a.max_mcast_grp) * a.max_mcast_qp_attach, INT32_MAX));
    out.max_ah = int(a.max_ah);
    out.max_srq = int(a.max_srq);
    out.max_srq_wr = int(a.max_srq_wr);
    out.max_srq_sge = int(a.max_srq_sge);
    out.max_pkeys = uint16_t(a.max_pkeys);
    out.local_ca_ack_delay = uint8_t(a.local_ca_ack_delay);
    out.phys_port_cnt = uint8_t(a.phys_ports);
    return out;
}

ibv_port_attr to_verbs(const abi::PortAttr& a) {
    ibv_port_attr out{};
    out.state = ibv_port_state(a.state);
    out.max_mtu = ibv_mtu(a.max_mtu);
    out.active_mtu = ibv_mtu(a.active_mtu);
    out.gid_tbl_len = int(a.gid_table_length);
    out.port_cap_flags = a.port_cap_flags;
    out.max_msg_sz = a.max_message;
    out.bad_pkey_cntr = a.bad_pkey_counter;
    out.qkey_viol_cntr = a.qkey_violation_counter;
    out.pkey_tbl_len = uint16_t(a.pkey_table_length);
    out.lid = kNoLid;
    out.sm_lid = kNoLid;
    out.max_vl_num = 1;
    out.active_width = uint8_t(a.active_width);
    out.active_speed = uint8_t(a.active_speed);
    out.phys_state = uint8_t(a.phys_state);
    out.link_layer = IBV_LINK_LAYER_ETHERNET;
    out.flags = IBV_QPF_GRH_REQUIRED;  // RoCE addresses are GIDs, so each packet has a GRH
    return out;
}

/// Sets `attr` to the device attributes. Returns 0, or an errno if rocid has ended. With a device page, the function copies the
/// attributes that were read when the device was opened. Without a device page, the function sends a control call, because only
/// a control call detects the end of rocid.
int refresh(Context& c, abi::DeviceAttr& attr) {
    Context* s = serving(c);
    if (s == nullptr) return EIO;
    if (!s->page.mapped()) return s->call(abi::Op::query_device, abi::Empty{}, attr);
    if (!rocid_serves(*s)) return refuse(EIO);
    attr = s->attr;
    return 0;
}

int ask_port(Context& c, uint8_t port, abi::PortAttr& out) {
    const int err = ask_page(c, out);
    return err == EAGAIN ? c.call(abi::Op::query_port, abi::HandleRequest{port, 0}, out) : err;
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr, size_t attr_size) {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    abi::DeviceAttr now{};
    if (const int err = refresh(*Context::from(context), now); err != 0) return err;
    ibv_device_attr_ex full{};
    full.orig_attr = to_verbs(now);
    full.completion_timestamp_mask = now.completion_timestamp_mask;
    full.odp_caps.general_caps = now.odp_general;
    full.odp_caps.per_transport_caps = {now.odp_rc, now.odp_uc, now.odp_ud};
    full.xrc_odp_caps = now.odp_xrc;
    full.max_dm_size = now.max_dm_size;
    full.cq_mod_caps.max_cq_count = uint16_t(now.max_cq_count);
    full.cq_mod_caps.max_cq_period = uint16_t(now.max_cq_period);
    full.hca_core_clock = now.hca_core_clock_khz;
    full.device_cap_flags_ex = now.device_cap_flags;
    full.phys_port_cnt_ex = now.phys_ports;
    full.tm_caps = {now.tm.max_rndv_hdr_size, now.tm.max_num_tags, now.tm.flags, now.tm.max_ops, now.tm.max_sge};
    std::memset(static_cast<void*>(attr), 0, attr_size);
    std::memcpy(static_cast<void*>(attr), &full, std::min(attr_size, sizeof full));
    return 0;
}

int query_port_ex(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t attr_size) {
    Context& c = *Context::from(context);
    if (port == 0 || port > std::max<uint32_t>(c.attr.phys_ports, 1)) return EINVAL;
    abi::PortAttr reply{};
    Context* s = serving(c);
    if (s == nullptr) return EIO;
    if (const int err = ask_port(*s, port, reply); err != 0) return err;
    const ibv_port_attr full = to_verbs(reply);
    std::memset(static_cast<void*>(attr), 0, attr_size);
    std::memcpy(static_cast<void*>(attr), &full, std::min(attr_size, sizeof full));
    return 0;
}

/// Returns the time of the raw clock, which completion timestamps use. The raw clock is CLOCK_MONOTONIC. Like hardware drivers,
/// the function returns the whole time in tv_nsec.
int query_rt_values(ibv_context*, ibv_values_ex* values) {
    if ((values->comp_mask & ~uint32_t(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EINVAL;
    const uint32_t wanted = values->comp_mask;
    if ((wanted & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        values->raw_clock.tv_sec = 0;
        values->raw_clock.tv_nsec = now.tv_sec * 1'000'000'000L + now.tv_nsec;
    }
    values->comp_mask = wanted;
    return 0;
}

int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
    if (port > UINT8_MAX) return refuse(EINVAL);
    ibv_port_attr attr{};
    if (const int err = query_port_ex(context, uint8_t(port), &attr, sizeof attr); err != 0) return refuse(err);
    *speed = abi::link_rate(attr.active_width, attr.active_speed);
    return 0;
}

}  // namespace roci::client

using namespace roci::client;

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    ibv_device_attr_ex full{};
    const int err = query_device_ex(context, nullptr, &full, sizeof full);
    if (err == 0) *attr = full.orig_attr;
    return err;
}

// Programs that call the exported function use the old struct ibv_port_attr without port_cap_flags2.
int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
    constexpr size_t kOldSize = 48;
    static_assert(offsetof(ibv_port_attr, flags) < kOldSize && offsetof(ibv_port_attr, port_cap_flags2) + 2 >= kOldSize);
    return query_port_ex(context, port, reinterpret_cast<ibv_port_attr*>(attr), kOldSize);
}

// The P_Key table has only the default P_Key (RoCEv2 annex A17.7).
int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
    if (port == 0 || port > std::max<uint32_t>(Context::from(context)->attr.phys_ports, 1) || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
    __be16 first = 0;
    if (const int err = ibv_query_pkey(context, port, 0, &first); err != 0) return err;
    if (pkey == first) return 0;
    errno = EINVAL;
    return -1;
}
