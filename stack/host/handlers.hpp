// The handlers of all operations, by file; the dispatch table in dispatch.cpp names each once.
#pragma once

#include "host/impl.hpp"

namespace roci::host {

// device.cpp
Outcome hello(Call&);
Outcome list_devices(Call&);
Outcome open_device(Call&);
Outcome query_device(Call&);
Outcome query_port(Call&);
Outcome query_gid_table(Call&);
void close_device(Host&, Session&);
uint32_t active_mtu(const DeviceConfig&);  ///< enum ibv_mtu
uint32_t gid_table_length(const DeviceConfig&);

// memory.cpp
Outcome alloc_pd(Call&);
Outcome dealloc_pd(Call&);
Outcome add_region(Call&);
Outcome remove_region(Call&);
Outcome reg_mr(Call&);
Outcome rereg_mr(Call&);
Outcome dereg_mr(Call&);

// cq.cpp
Outcome create_channel(Call&);
Outcome destroy_channel(Call&);
Outcome create_cq(Call&);
Outcome modify_cq(Call&);
Outcome destroy_cq(Call&);
// cq_resize.cpp
Outcome resize_cq(Call&);

// srq.cpp
Outcome create_srq(Call&);
Outcome modify_srq(Call&);
Outcome query_srq(Call&);
Outcome destroy_srq(Call&);
void retire(Host&, Srq&);  ///< the engine lets go of it
void bury(Host&, Srq&);    ///< after fence_all(): its memory and number go

// qp.cpp
Outcome create_qp(Call&);
Outcome query_qp(Call&);
Outcome destroy_qp(Call&);
void retire(Host&, Qp&);
void bury(Host&, Qp&);
int snapshot(Host&, const Qp&, qp::Snapshot& out);  ///< asks the QP's engine
// qp_modify.cpp
Outcome modify_qp(Call&);

// address_handle.cpp
Outcome create_ah(Call&);
Outcome destroy_ah(Call&);

// status.cpp
Outcome status(Call&);
std::string status_text(Host&);

// session.cpp
void reclaim(Host&, Session&);

}  // namespace roci::host
