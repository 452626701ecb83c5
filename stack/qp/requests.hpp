// Declarations that responder.cpp (the checks, SEND and WRITE) and reads.cpp (READ, atomics and FLUSH) share.
#pragma once

#include "mem/memory_region.hpp"
#include "qp/roles.hpp"

namespace roci::qp {

/// The result of storing a payload. If `fault` is not `none`, the payload could not be stored directly. `later` is then the
/// result of the attempt to store the payload in slow memory (mem/slow_memory.hpp). The fault takes effect only if `later` is
/// `refused`.
struct Placed {
    RequestFault fault = RequestFault::none;
    Placing later = Placing::refused;
};
/// Refuses the current request because of the fault `f`. Performs the actions in the fault's row of kFaults (responder.cpp).
/// For example, schedules a NAK and completes the receive.
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
void execute_flush(Context& ctx, Qp& qp, const wire::Packet& p);
/// Returns the rights that a FLUSH needs, one per placement type.
constexpr uint32_t flush_rights(uint32_t flush) {
    return ((flush & abi::kFlushGlobal) != 0 ? uint32_t{mem::kFlushGlobal} : 0) |
           ((flush & abi::kFlushPersistent) != 0 ? uint32_t{mem::kFlushPersistent} : 0);
}
/// Called when the memory operation of an atomic or ATOMIC WRITE is done. Completes the request and schedules its response.
void finish_atomic(Context& ctx, Qp& qp, const wire::Packet& p, uint64_t original);
void finish_atomic_write(Context& ctx, Qp& qp, const wire::Packet& p);
/// Handles a duplicate request (IBA 9.7.5.1.5, C9-105). Executes a READ again. Answers an atomic from its stored result. Repeats
/// the response of an ATOMIC WRITE or FLUSH, and the ACK for any other request.
void duplicate(Context& ctx, Qp& qp, const wire::Packet& p);

}  // namespace roci::qp
