// The state of a QP: plain data, grouped by role. The roles are functions over this state, each in its own file. Only the owning
// engine changes the state. The conductor (rocid's control thread) reads only the parts that spec.hpp declares. Thousands of QPs
// compete for the cache. Therefore the state is small, each role has its own cache lines, and each message loads only the lines
// that it needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/line_memory.hpp"
#include "base/timer_wheel.hpp"
#include "cc/controller.hpp"
#include "qp/deadlines.hpp"
#include "qp/journal.hpp"
#include "qp/read_cuts.hpp"
#include "qp/receive_sequence.hpp"
#include "qp/repair.hpp"
#include "qp/send_queue.hpp"
#include "qp/send_times.hpp"
#include "qp/send_window.hpp"
#include "qp/spec.hpp"
#include "qp/tables.hpp"
#include "wire/build.hpp"

namespace roci::qp {

struct Reorder;    // reorder_pool.hpp
struct SlowState;  // slow_memory.hpp

/// Requester and completer. The first two cache lines contain the queue, the window and the deadlines; the third contains
/// congestion control and repair.
struct Requester {
    [[no_unique_address]] SendQueue queue;  // its padding holds the next fields
    bool credits_valid = false;             ///< the peer sends credits
    bool credit_probe = false;              ///< one message beyond the peer's credits is outstanding (IBA 9.7.7.2.5)
    bool blocked = false;                   ///< the record at the cursor has a fault; no later request is sent
    bool implied_nak_pending = false;       ///< a lost response was requested again, and no packet was acknowledged since
    uint8_t retries_left = 0, rnr_retries_left = 0;
    uint8_t timeouts_in_a_row = 0;
    SendWindow window;
    uint32_t next_ssn = 0;      ///< SSN of the last work request fetched
    uint32_t credit_limit = 0;  ///< LSN: newest SSN that may be sent
    Deadlines deadlines;
    Nanos ack_timeout = kNever;
    [[no_unique_address]] cc::Controller congestion;
    [[no_unique_address]] RoundTrip round_trip;
    [[no_unique_address]] Repair repair;
    uint16_t since_ack_request = 0;
    uint16_t probes = 0;  ///< number of probes sent since RESET
};
static_assert(offsetof(Requester, congestion) == 128 && sizeof(Requester) == 192);

/// A shared receive queue. The object shares no cache line with other objects, because its engine writes the object.
struct alignas(64) Srq {
    const SrqSpec spec;
    rings::RqView rq;  ///< resize_srq may replace the ring
    rings::RqCursor cursor;
    uint32_t limit = 0;            ///< limit for SRQ_LIMIT_REACHED; 0: not armed
    std::unique_ptr<TagSrq> tags;  ///< set for tag matching, otherwise nullptr
};

/// The copied SGEs of a receive. A single SGE is stored in the object. More SGEs are stored on cache lines of their own, because
/// adjacent heap memory may belong to another engine.
class RecvSges {
public:
    void make_room(uint32_t count) {
        if (count > 1) more_ = make_line_array<abi::Sge>(count);
    }
    abi::Sge* get() { return more_ ? more_.get() : &one_; }

private:
    abi::Sge one_{};
    LineArray<abi::Sge> more_;
};

/// A copy of a receive WQE that was taken from the RQ or SRQ.
struct RecvWork {
    bool held = false;
    uint16_t num_sge = 0;
    uint32_t pd = 0;  ///< PD of the queue of this receive; the PD of an SRQ may differ from the QP's
    uint64_t wr_id = 0;
    uint64_t capacity = 0;
    RecvSges sges;
    Srq* srq = nullptr;  ///< SRQ of this receive; nullptr if the receive came from the QP's own queue
};

/// A READ, atomic, ATOMIC WRITE or FLUSH that is being answered. The job is removed when its last response is sent. A later
/// duplicate of the request gets a new job (IBA 9.7.5.1.5, C9-150).
struct ResponderJob {
    Psn first;          ///< PSN of the first response packet
    uint32_t sent = 0;  ///< number of response packets sent
    uint32_t length = 0;
    Key rkey;
    uint64_t va = 0;  ///< address in the region; for an atomic, the original value instead
    uint32_t pd = 0;
    uint32_t msn : 24 = 0;
    bool atomic : 1 = false;
    bool replay : 1 = false;  ///< this job answers a duplicate
};
static_assert(sizeof(ResponderJob) == 32);  // checked because every QP has several jobs

/// The result of an executed atomic, kept for replay.
struct AtomicResult {
    uint64_t original = 0;
    Psn psn;
    Msn msn{kNoMsn};
    static constexpr uint32_t kNoMsn = ~0u;
    bool valid() const { return msn.value != kNoMsn; }
};

/// The READs, atomics, ATOMIC WRITEs and FLUSHes to be answered, in PSN order. The ring has slots for max_dest_rd_atomic new jobs
/// and the same number of replays.
struct JobRing {
    LineArray<ResponderJob> slots;
    uint16_t size = 0, head = 0, count = 0;
    void resize(uint32_t n) {
        slots = make_line_array<ResponderJob>(n);
        size = uint16_t(n);
        head = count = 0;
    }
    ResponderJob& at(uint32_t i) const { return slots[(head + i) % size]; }
    ResponderJob& oldest() const { return at(0); }
    void drop_oldest() {
        head = uint16_t((head + 1u) % size);
        --count;
    }
    void remove(uint32_t i) {
        for (--count; i < count; ++i) at(i) = at(i + 1);
    }
    void insert(uint32_t i, const ResponderJob& job) {
        for (uint32_t k = count++; k > i; --k) at(k) = at(k - 1);
        at(i) = job;
    }
};
/// The results of the last atomics, in a ring.
struct AtomicResults {
    LineArray<AtomicResult> slots;
    uint32_t size = 0, next = 0;
    void resize(uint32_t n) {
        slots = n != 0 ? make_line_array<AtomicResult>(n) : nullptr;
        size = n;
        next = 0;
    }
    void keep(const AtomicResult& result) {
        slots[next] = result;
        next = (next + 1) % size;
    }
    /// Returns the newest result with this PSN, or nullptr. An older result may have the same PSN, because PSNs wrap around.
    const AtomicResult* find(Psn psn) const {
        for (uint32_t back = 1; back <= size; ++back) {
            const AtomicResult& r = slots[(next + size - back) % size];
            if (r.valid() && r.psn == psn) return &r;
        }
        return nullptr;
    }
};

struct Responder {
    [[no_unique_address]] ReceiveSequence sequence;  // its padding holds the next fields
    // the message being received
    bool in_message = false;
    bool message_is_write = false;
    uint64_t va = 0;         ///< WRITE: address of the next packet's payload
    uint32_t remaining = 0;  ///< WRITE: number of bytes that have not arrived
    Key rkey;
    uint64_t received = 0;  ///< bytes of the message received so far
    RecvWork recv;
    JobRing jobs;
    AtomicResults atomics;
};
static_assert(sizeof(Responder) == 128);

/// A QP's place in a run queue (run_queue.hpp).
struct Turn {
    Qp* next = nullptr;
    Qp** link = nullptr;  ///< the pointer that points to this QP; nullptr if the QP is not on the list
    bool listed() const { return link != nullptr; }
};

struct alignas(64) Qp {
    [[no_unique_address]] const Spec spec;  // its padding holds the next fields
    rings::RqCursor rq_cursor;              ///< position in spec.rq
    Owner owner;
    // ---- hot, both roles
    State state = State::reset;
    bool has_work = false;            ///< the requester may have requests, or the client may post without a doorbell
    bool sqd_pending : 1 = false;     ///< in SQD: the SQ_DRAINED event was not raised yet
    bool notify_drained : 1 = false;  ///< the client requested the SQ_DRAINED event
    bool established : 1 = false;
    bool answers : 1 = false;     ///< the requester has sent a request since the responder last held back an ACK
    uint8_t held_rounds : 4 = 0;  ///< number of rounds for which the responder has held back the pending ACK
    uint8_t linger = 0;
    uint16_t share = 0;  ///< number of the session's share in the run queues
    uint8_t mtu_shift = 0;
    uint8_t retry_cnt = 0, rnr_retry = 0, min_rnr_timer = 0;
    uint8_t max_rd_atomic = 0, max_dest_rd_atomic = 0;
    uint32_t mtu = 0;  ///< path MTU in bytes
    Qpn dest;
    uint32_t access = 0;           ///< enum ibv_access_flags that remote requests may use
    uint32_t qkey = 0;             ///< only for UD
    bool keeps_requests = false;   ///< the reorder buffer holds requests
    bool keeps_responses = false;  ///< the reorder buffer holds responses, an ACK or a NAK
    bool waits_requests = false;   ///< a request waits for slow memory, and all requests behind it wait too
    bool waits_responses = false;  ///< a response waits for slow memory, and all responses behind it wait too
    Turn asking;                   ///< place in the list of requesters with work
    Turn answering;                ///< place in the list of responders with work
    wire::PathTemplate path;
    Counters counters;
    Timer timer;  ///< set to the earliest of requester.deadlines; for the reorder buffer see Reorder::timer
    alignas(64) Requester requester;
    std::unique_ptr<TagQp> tags;       ///< set if the QP's SRQ matches tags, otherwise nullptr
    Reorder* reorder = nullptr;        ///< allocated for the first frame out of order or inquiry for loss reports
    std::unique_ptr<Journal> journal;  ///< allocated when the first unusual event occurs
    cc::State adaptation;              ///< state of the congestion control policy in requester.congestion
    SlowState* slow = nullptr;         ///< allocated when the QP first uses slow memory
    RepairTime repair_time;
    SendTimes send_times;  ///< for congestion control; unused with the fixed window
    ReadCuts read_cuts;
    alignas(64) Responder responder;
};
static_assert(offsetof(Qp, state) == 128 && offsetof(Qp, path) == 192 && sizeof(Qp) == 1024);

/// Returns the number of PSNs from `packet` of a READ or atomic to the end of the request that contains this packet.
inline uint32_t rest_of_request(const Qp& qp, const SendRecord& r, uint32_t packet) {
    if (!r.divided) return r.packets - packet;
    const Psn at = r.first_psn + packet;
    return psn_span(at, qp.read_cuts.end_of_request(at, r.first_psn + r.packets));
}

/// Returns true if the QP's SRQ matches tags. Tests `srq` first, because a receiver has loaded the cache line of `srq` already,
/// but not that of `tags`.
inline bool matches_tags(const Qp& qp) { return qp.spec.srq != nullptr && qp.tags != nullptr; }

// The functions below prefetch cache lines of a QP that will have its turn soon (run_queue.hpp). The lines of prefetch_basics()
// show which other lines will be needed.
inline void prefetch_lines(const void* from, const void* end) {
    for (const auto* p = static_cast<const std::byte*>(from); p < end; p += 64) __builtin_prefetch(p);
}
inline void prefetch_basics(const Qp& qp) {
    __builtin_prefetch(&qp.spec);
    __builtin_prefetch(&qp.state);
}
/// Prefetches the path and the first counters, which packets of both directions need.
inline void prefetch_path(const Qp& qp) { prefetch_lines(&qp.path, &qp.counters.events.retransmits); }
inline void prefetch_requester(const Qp& qp) {
    __builtin_prefetch(&qp.timer);
    prefetch_lines(&qp.requester, &qp.requester + 1);
}
/// Prefetches the first cache line of the responder, and the location of the receive queue.
inline void prefetch_responder(const Qp& qp) {
    __builtin_prefetch(&qp.spec.rq);
    __builtin_prefetch(&qp.responder);
}

/// Returns the number of packets in the response to a READ of `length` bytes. The response to an atomic or an empty READ is one
/// packet.
inline uint32_t response_packets(const Qp& qp, uint32_t length) {
    return length == 0 ? 1 : uint32_t((uint64_t{length} + qp.mtu - 1) >> qp.mtu_shift);
}
inline uint32_t response_packets(const Qp& qp, const ResponderJob& job) { return response_packets(qp, job.length); }
/// Returns one past the PSN of the job's last response.
inline Psn end_psn(const Qp& qp, const ResponderJob& job) { return job.first + response_packets(qp, job); }
inline bool overlap(const Qp& qp, const ResponderJob& a, const ResponderJob& b) {
    return a.first.in_window(b.first, response_packets(qp, b)) || b.first.in_window(a.first, response_packets(qp, a));
}

/// Checks the invariants of a QP between two rounds of the engine (check.cpp). Returns a description of a violated invariant,
/// or nullptr.
const char* check(const Qp& qp);

}  // namespace roci::qp
