// The handlers of operations on objects, by file.
#pragma once

#include "host/call.hpp"

namespace roci::host::objects {

// memory.cpp
Outcome alloc_pd(Call&);
Outcome dealloc_pd(Call&);
Outcome add_region(Call&);
Outcome remove_region(Call&);
Outcome reg_mr(Call&);
Outcome rereg_mr(Call&);
Outcome dereg_mr(Call&);
Outcome alloc_null_mr(Call&);
Outcome check_access(uint32_t asked, uint32_t& served);  ///< enum ibv_access_flags; `served`: what the engines look at
bool may_reach(Call&);  ///< rocid may read and write the client's memory by address: what on-demand paging needs
/// A key for the region, which is then published. ENOMEM: all are in use.
Outcome take_key(State&, mem::MemoryRegion&);

// window.cpp
Outcome alloc_mw(Call&);
Outcome dealloc_mw(Call&);
void free_resources(State&, Mw&);  ///< after the slot was cleared and fence_all(): its key goes

// device_memory.cpp
Outcome alloc_dm(Call&);
Outcome free_dm(Call&);
Outcome reg_dm_mr(Call&);

// xrcd.cpp
Outcome open_xrcd(Call&);
Outcome close_xrcd(Call&);

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
void retire(State&, Srq&);          ///< the engine lets go of it
void free_resources(State&, Srq&);  ///< after fence_all(): its memory and number go

// qp.cpp
Outcome create_qp(Call&);
Outcome query_qp(Call&);
Outcome destroy_qp(Call&);
/// The engine lets go of it. False: a worker may still write its buffers, ask again; never with `force`.
[[nodiscard]] bool retire(State&, Qp&, bool force = false);
void free_resources(State&, Qp&);
int snapshot(State&, const Qp&, qp::Snapshot& out);  ///< asks the QP's engine
// qp_open.cpp
Outcome open_qp(Call&);
void share(Xrcd&, const std::shared_ptr<Qp>& target);  ///< a new XRC target of its owner's: other sessions may open it
/// A handle of a QP is given up. True: others have it open, and it goes on with them.
bool leave(State&, const qp::Owner&, Qp&);
// qp_modify.cpp
Outcome modify_qp(Call&);

// multicast.cpp
Outcome attach_mcast(Call&);
Outcome detach_mcast(Call&);
void leave_groups(State&, Qp&);

// address_handle.cpp
Outcome create_ah(Call&);
Outcome destroy_ah(Call&);

}  // namespace roci::host::objects
