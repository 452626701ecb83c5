// Layout of the rings, doorbells and flags that a client process and rocid share.
//
// The rings are in the session's arena: memfd chunks that the client creates and passes by SCM_RIGHTS. Each chunk is one mapping.
// A `Location` is a range of the arena. Indices are free-running and wrap at 2^32. Ring sizes are powers of two. Each field has
// one writer, except the fields marked "written by both sides". Both sides access the fields with std::atomic_ref
// (client_rings.hpp, stack/rings).
#pragma once

#include <cstdint>

#include "version.hpp"

namespace roci::abi {

/// A range of the session's arena: a part of one chunk.
struct Location {
    uint32_t chunk;
    uint32_t reserved;
    uint64_t offset;
    uint64_t length;
};

/// The head of a send queue. `depth` slots of `stride` bytes follow.
///
/// `SendWqe::phase` marks a posted WQE. There is no producer index, because the cache line of an index would move between the
/// cores in addition to the line of the WQE.
///
/// The doorbell rule: rocid polls the next slot of an active QP without a doorbell. When rocid stops polling, it stores idle = 1
/// and then checks the slot once more. A client stores the phase, executes a full fence, and exchanges `idle` with 0. The client
/// rings the doorbell only if `idle` was 1. So rocid polls no idle QP, and a client rings no doorbell of a busy QP.
struct SqShared {
    alignas(kCacheLine) uint32_t idle;  ///< written by both sides; 1: the client must ring the doorbell
};
static_assert(sizeof(SqShared) == 64);

/// The head of a receive queue or SRQ. `depth` slots of `stride` bytes follow.
///
/// If the QP is not in error, the client rings no doorbell after a post. When a message arrives, and rocid has already consumed
/// all receives up to the last value of `producer` that it read, rocid reads `producer` again. If the QP is in error, rocid sets
/// `ring`. The client then rings the doorbell after each post, so that rocid flushes the receives.
struct RqShared {
    alignas(kCacheLine) uint32_t producer;  ///< written by the client: number of WQEs posted so far
    alignas(kCacheLine) uint32_t ring;      ///< written by rocid; 1: the client rings the doorbell after posting
};
static_assert(sizeof(RqShared) == 128);

/// The head of a completion queue. `lanes` lanes follow, one per engine. A lane is a CqLane and `depth` entries (Cqe). All
/// entries of one QP are in the same lane, in order.
///
/// Arming: the client advances `arm` by 2; bit 0 requests an event for solicited entries only. rocid sends at most one event per
/// value of `arm`. The client arms, executes a full fence and polls once more. rocid writes an entry, executes a full fence and
/// reads `arm`.
///
/// Sleeping: a thread that polls an empty CQ may share its CPU with a busy program (cpu_pace.hpp). Such a thread stores
/// sleeping = 1, executes a full fence and polls once more. Then the thread waits with a short timeout on the futex `sleeping`
/// while the value is 1. rocid reads `sleeping` after it has written entries. At the latest before it goes idle, rocid executes
/// a full fence and reads `sleeping` once more. If the value is 1, rocid stores 0 and wakes the waiters.
struct CqShared {
    alignas(kCacheLine) uint32_t arm;  ///< written by the client
    uint32_t fired;     ///< written by rocid, as a hint: the last `arm` for which rocid sent an event, or an older value
    uint32_t sleeping;  ///< written by both sides; 1: a polling thread may sleep on this word
};
struct CqLane {
    alignas(kCacheLine) uint32_t consumer;  ///< written by the client: number of entries polled so far
};
static_assert(sizeof(CqShared) == 64 && sizeof(CqLane) == 64);

/// The doorbells of one session for one engine: a two-level bitmap with one slot per QP and per tag matching SRQ. A client sets
/// the slot's bit in `words`, then the bit of that word in `summary`. Both operations are seq_cst. rocid clears the bits in the
/// opposite order. A bitmap cannot overflow. Even if a hostile client sets arbitrary bits, rocid makes a bounded number of
/// lookups.
inline constexpr uint32_t kDoorbellSlots = 65536;
struct DoorbellPage {
    alignas(kCacheLine) uint64_t summary[kDoorbellSlots / 64 / 64];
    alignas(kCacheLine) uint64_t words[kDoorbellSlots / 64];
};

/// The sleeping flags of the engines, one cache line per engine. Clients map this page read-only. A client rings the doorbell,
/// executes a full fence and reads `sleeping`. If the value is 1, the client writes to the session's wake eventfd of that engine.
struct EnginePage {
    struct alignas(kCacheLine) Line {
        uint32_t sleeping;
    } engine[kMaxEngines];
};

/// The record that rocid sends to the socket of a completion channel. Each event is one packet.
struct CompEventRecord {
    uint32_t cq_handle;
    uint32_t generation;  ///< generation of the handle; if the CQ is destroyed, the reader skips the record
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
