// The handlers of operations on objects, and the functions that the files of this folder share, grouped by file.
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
/// Checks flags of enum ibv_access_flags. Sets `served` to the flags that engines evaluate.
Outcome check_access(uint32_t asked, uint32_t& served);
bool may_reach(Call&);  ///< returns true if rocid may access the client's memory by address, as on-demand paging requires
/// Allocates a key for the region, and adds the region to the key table that engines read. Fails with ENOMEM if all keys are in
/// use.
Outcome take_key(State&, mem::MemoryRegion&);

// window.cpp
Outcome alloc_mw(Call&);
Outcome dealloc_mw(Call&);
void free_resources(State&, Mw&);  ///< frees the window's key; called after the key's slot was cleared and after fence_all()

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

// queue_memory.cpp
Outcome add_chunk(Call&);

// srq.cpp
Outcome create_srq(Call&);
Outcome modify_srq(Call&);
Outcome query_srq(Call&);
Outcome destroy_srq(Call&);
void retire(State&, Srq&);          ///< removes the SRQ from its engine
void free_resources(State&, Srq&);  ///< frees the engine's object and the number of the SRQ; called after fence_all()

// qp.cpp
Outcome create_qp(Call&);
Outcome query_qp(Call&);
Outcome destroy_qp(Call&);
Outcome send_posted(Call&);
/// Removes the QP from its engine. Returns false if an access to slow memory (mem/slow_memory.hpp) by the QP is in progress. The
/// caller must then retry.
[[nodiscard]] bool retire(State&, Qp&);
void free_resources(State&, Qp&);
/// Returns the data for `roci why` that the conductor (rocid's control thread) itself stores, without a query to the engine.
QpFacts facts_of(const Session& session, const Qp& qp);
int snapshot(State&, const Qp&, qp::Snapshot& out);  ///< reads the QP's state from its engine
// qp_open.cpp
Outcome open_qp(Call&);
void share(Xrcd&, const std::shared_ptr<Qp>& target);  ///< adds a new XRC target to its domain for open_qp
/// Removes a handle of a QP that has other handles. If the QP has no other handle, changes nothing and returns false. The caller
/// must then destroy the QP.
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
