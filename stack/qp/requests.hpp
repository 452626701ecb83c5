// Declarations that responder.cpp (the check chain, SEND and WRITE) and reads.cpp (READ and atomics) share.
#pragma once

#include "mem/memory_region.hpp"
#include "qp/roles.hpp"

namespace roci::qp {

/// The result of storing a payload. With a fault, `later` tells whether the payload waits for slow memory instead. The fault
/// takes effect only if `later` is `refused`.
struct Placed {
    RequestFault fault = RequestFault::none;
    Placing later = Placing::refused;
};
/// Executes the actions in the fault's row: NAK, completion, event.
void fault(Context& ctx, Qp& qp, RequestFault f);

/// Memory that a request may access during the lifetime of this object.
struct Grant {
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;  ///< address within the region
    mem::WindowUse use;
    Target target() { return {.region = region, .va = va, .window = &use}; }
};

uint32_t domain_of(const Context& ctx, const Qp& qp, const wire::Packet& p);
bool remote_memory(Context& ctx, Qp& qp, const wire::Packet& p, Key key, uint64_t va, uint64_t length, uint32_t right,
                   Grant& grant);

// ---- reads.cpp
void execute_read(Context& ctx, Qp& qp, const wire::Packet& p);
void execute_atomic(Context& ctx, Qp& qp, const wire::Packet& p);
void execute_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p);
/// Completes an atomic after the memory was exchanged or stored to.
void finish_atomic(Context& ctx, Qp& qp, const wire::Packet& p, uint64_t original);
void finish_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p);
/// Handles a duplicate request (IBA 9.7.5.1.5, C9-105 …). A READ is executed again. An atomic is answered from its stored result.
/// For any other request, the ACK is repeated.
void duplicate(Context& ctx, Qp& qp, const wire::Packet& p);

}  // namespace roci::qp
