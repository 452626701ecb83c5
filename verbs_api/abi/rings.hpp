// Layout of the rings, doorbells and flags that a client process and rocid share.
//
// Rings are in a session's arena: memfd chunks that rocid creates and passes with SCM_RIGHTS, one mapping per chunk. `Location`
// names a place in it. Indices are free-running and wrap at 2^32; ring sizes are powers of two. Only one side writes each cache
// line. Both sides access fields with std::atomic_ref (client_rings.hpp, stack/rings).
#pragma once

#include <cstdint>

#include "version.hpp"

namespace roci::abi {

/// A place in the session's arena.
struct Location {
    uint32_t chunk;
    uint32_t reserved;
    uint64_t offset;
    uint64_t length;
};

/// Head of a send queue; `depth` slots of `stride` bytes follow.
///
/// A posted WQE carries its own mark, `SendWqe::phase`. There is no producer index: its cache line would move between the cores
/// in addition to the WQE's line.
///
/// The doorbell rule: rocid watches the next slot of an active QP by itself. When it stops watching it stores idle = 1, then
/// checks the slot once more. A client stores the phase, then (full fence) exchanges idle with 0; it rings the doorbell only if
/// idle was 1. So an idle QP costs rocid nothing, and a busy QP costs the client no doorbell.
struct SqShared {
    alignas(kCacheLine) uint32_t idle;  ///< both: 1 = ring the doorbell
};
static_assert(sizeof(SqShared) == 64);

/// Head of a receive queue or SRQ; `depth` slots of `stride` bytes follow. rocid reads `producer` when a message arrives and all
/// receives that it knows of are consumed, so posting needs no doorbell. Exception: for a QP in error rocid sets `ring`, and the
/// client rings after each post so that the receives are flushed.
struct RqShared {
    alignas(kCacheLine) uint32_t producer;  ///< client: WQEs posted so far
    alignas(kCacheLine) uint32_t ring;      ///< rocid: 1 = ring the doorbell after posting
};
static_assert(sizeof(RqShared) == 128);

/// Head of a completion queue. `lanes` lanes follow, one per engine; a lane is a CqLane and `depth` Cqe. The entries of
/// one QP are all in one lane, in order.
///
/// Arming: the client adds 1 << 1 to `arm`, with bit 0 = only solicited. rocid sends at most one event per value of `arm`.
/// The client arms, then (full fence) polls once more; rocid writes an entry, then (full fence) reads `arm`.
///
/// Sleeping: a thread that polls an empty CQ on a CPU that a busy program wants (cpu_pace.hpp) stores sleeping = 1, then (full
/// fence) polls once more, then waits on the word (a futex) while it is 1, with a short timeout. rocid writes an entry, then
/// (full fence, before it goes idle) reads `sleeping`; if it is 1, rocid stores 0 and wakes the waiters.
struct CqShared {
    alignas(kCacheLine) uint32_t arm;  ///< client
    uint32_t fired;                    ///< rocid: approximately the last `arm` for which it sent an event; a hint for the client
    uint32_t sleeping;                 ///< both: 1 = a polling thread may sleep on this word
};
struct CqLane {
    alignas(kCacheLine) uint32_t consumer;  ///< client: entries polled so far (may lag)
};
static_assert(sizeof(CqShared) == 64 && sizeof(CqLane) == 64);

/// Doorbells of one session for one engine: a two-level bitmap of the session's QP slots. A client sets the QP's bit, then the
/// bit of that word in `summary` (both with seq_cst order); rocid clears them in the opposite order. A bitmap cannot overflow,
/// and whatever a hostile client writes into it, it costs rocid a bounded number of lookups.
inline constexpr uint32_t kDoorbellSlots = 65536;
struct DoorbellPage {
    alignas(kCacheLine) uint64_t summary[kDoorbellSlots / 64 / 64];
    alignas(kCacheLine) uint64_t words[kDoorbellSlots / 64];
};

/// Read-only for clients, one line per engine. After ringing and a full fence a client reads `sleeping`; if it is 1, the client
/// writes to the session's wake eventfd of that engine.
struct EnginePage {
    struct alignas(kCacheLine) Line {
        uint32_t sleeping;
    } engine[kMaxEngines];
};

/// The record that rocid sends to the socket of a completion channel: one packet per event.
struct CompEventRecord {
    uint32_t cq_handle;
    uint32_t generation;  ///< of the handle: a record for a destroyed CQ is skipped by the reader
};

/// The asynchronous events that rocid raises, with the numbers of enum ibv_event_type.
enum class AsyncEvent : uint32_t {
    cq_err = 0,
    qp_fatal = 1,
    qp_req_err = 2,
    qp_access_err = 3,
    comm_est = 4,
    sq_drained = 5,
    port_active = 9,
    port_err = 10,
    srq_err = 14,
    srq_limit_reached = 15,
    qp_last_wqe_reached = 16,
    gid_change = 18,
};

/// The record that rocid sends to the socket of an open device.
struct AsyncEventRecord {
    uint32_t event_type;  ///< enum ibv_event_type
    uint32_t handle;      ///< CQ, QP or SRQ handle, or port number
    uint32_t generation;
    uint32_t reserved;
};

}  // namespace roci::abi
