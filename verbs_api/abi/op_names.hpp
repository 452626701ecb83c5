// The names of the control operations (Op). rocid and the client libraries use the names in log messages and error texts.
#pragma once

#include <cstddef>
#include <iterator>

#include "abi/control.hpp"

namespace roci::abi {

/// Indexed by the number of the operation. No operation has number 0.
inline constexpr const char* kOpNames[] = {
    "?",
    "hello",
    "list_devices",
    "open_device",
    "query_device",
    "query_port",
    "query_gid_table",
    "alloc_pd",
    "dealloc_pd",
    "add_region",
    "remove_region",
    "reg_mr",
    "rereg_mr",
    "dereg_mr",
    "create_channel",
    "destroy_channel",
    "create_cq",
    "resize_cq",
    "modify_cq",
    "destroy_cq",
    "create_srq",
    "modify_srq",
    "query_srq",
    "destroy_srq",
    "create_qp",
    "modify_qp",
    "query_qp",
    "destroy_qp",
    "create_ah",
    "destroy_ah",
    "attach_mcast",
    "detach_mcast",
    "alloc_mw",
    "dealloc_mw",
    "open_xrcd",
    "close_xrcd",
    "status",
    "alloc_dm",
    "free_dm",
    "reg_dm_mr",
    "alloc_null_mr",
    "cm_open_channel",
    "cm_close_channel",
    "cm_create_id",
    "cm_destroy_id",
    "cm_bind",
    "cm_resolve_addr",
    "cm_resolve_route",
    "cm_listen",
    "cm_connect",
    "cm_accept",
    "cm_establish",
    "cm_reject",
    "cm_notify",
    "cm_disconnect",
    "cm_get_event",
    "cm_qp_attr",
    "cm_query",
    "cm_set_option",
    "cm_migrate",
    "cm_join",
    "cm_leave",
    "cm_write_event",
    "start_capture",
    "stop_capture",
    "open_qp",
    "counters",
    "why",
    "add_chunk",
    "send_posted",
};
static_assert(std::size(kOpNames) == size_t(Op::last_op));

constexpr const char* op_name(Op op) { return size_t(op) < std::size(kOpNames) ? kOpNames[size_t(op)] : kOpNames[0]; }

}  // namespace roci::abi
