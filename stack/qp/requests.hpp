// What the parts of the responder share: responder.cpp (the check chain, SEND and WRITE) and reads.cpp (READ and atomics).
#pragma once

#include "mem/memory_region.hpp"
#include "qp/roles.hpp"

namespace roci::qp {

/// What became of a payload. With a fault, `later` says whether it is put off instead: the fault counts only if that is refused.
struct Placed {
    RequestFault fault = RequestFault::none;
    Placing later = Placing::refused;
};
/// Does what the fault's row says: NAK, completion, event.
void fault(Context& ctx, Qp& qp, RequestFault f);

/// Memory that a request may use, for as long as this lives.
struct Grant {
    const mem::MemoryRegion* region = nullptr;
    uint64_t va = 0;  ///< within the region
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
/// The memory was exchanged, or stored to.
void finish_atomic(Context& ctx, Qp& qp, const wire::Packet& p, uint64_t original);
void finish_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p);
/// A READ that was asked for before is executed again; an atomic is answered from what was kept; anything else was executed, so
/// the ACK is repeated (IBA 9.7.5.1.5, C9-105 …).
void duplicate(Context& ctx, Qp& qp, const wire::Packet& p);

}  // namespace roci::qp
