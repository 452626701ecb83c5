// The state of an engine that the functions of a QP use, for example the time, the shared tables, the transmit queues and the
// run queues.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/line_memory.hpp"
#include "base/timer_wheel.hpp"
#include "io/event.hpp"
#include "mem/memory_region.hpp"
#include "qp/outbox.hpp"
#include "qp/reorder_pool.hpp"
#include "qp/run_queue.hpp"
#include "qp/shared.hpp"
#include "qp/slow_memory.hpp"
#include "qp/state.hpp"

namespace roci::qp {

/// The kinds of messages that a responder executes.
enum class Executed : uint8_t { send, write, read, atomic, count_ };

/// Counts of a port that change with each frame or message. Only the engine accesses this object. Engine::Impl::publish copies
/// the counts to DeviceCounters.
struct alignas(64) PortTally {
    uint64_t rx_frames = 0, rx_octets = 0;
    uint64_t tx_messages = 0;
    uint64_t tx_octets = 0;  ///< bytes of all frames built, including those that wait in the outbox
    std::array<uint64_t, size_t(Executed::count_)> executed{};  ///< number of messages executed by responders, by kind
};

struct Context {
    static constexpr size_t kMaxPorts = 32;
    Nanos now = 0;
    /// Time since the ports were last empty, ns. A frame may have waited at its port for this time, because the engine had no CPU
    /// or much work.
    uint32_t unseen = 0;
    uint32_t engine = 0;
    LineVector<cc::Limits> congestion;  ///< by port
    uint32_t ack_every = 32;
    bool selective_repeat = true;
    bool loss_reports = false;
    qp::Shared* shared = nullptr;
    io::EventRing* events = nullptr;
    std::vector<Outbox> outbox;                ///< by port; frames to be sent
    LineVector<DeviceCounters*> devices;       ///< by port; this engine's counters of the device
    std::array<PortTally, kMaxPorts> tallies;  ///< by port
    TimerWheel wheel;
    rings::Completions completions;  ///< completions of this round that are not in the CQs yet
    /// The message that a responder has executed, or for which a requester has written a completion, last: twice the number of
    /// the QP, plus 1 for a requester.
    uint32_t latest = 0;
    uint64_t copies = 0;                  ///< number of copies of sent multicast packets for QPs of this rocid
    LineVector<rings::Cq*> dirty;         ///< CQs with new entries for which rings::notify() has not succeeded
    LineVector<rings::Cq*> unsettled;     ///< CQs that got entries since the last settle_sleepers()
    LineVector<rings::Sleeper> sleepers;  ///< sleeping threads of clients, to be woken after this round
    std::deque<io::Event> late_events;    ///< events for which the event ring was full
    RunQueue<&Qp::asking> requesters;     ///< QPs whose requester has work
    RunQueue<&Qp::answering> responders;  ///< QPs whose responder has responses to send
    std::unique_ptr<SlowMemory> slow;
    bool short_round = false;              ///< the next round sends few frames (loss_detected)
    Arrival arrival;                       ///< the frame that the engine executes now
    std::unique_ptr<ReorderPool> reorder;  ///< nullptr: the engine discards frames that arrive out of order
    std::map<uint32_t, Slab> records;      ///< by block size; memory of the work requests that are fetched and not completed

    Outbox& out(const Qp& qp) { return outbox[qp.spec.port]; }
    DeviceCounters& device(const Qp& qp) { return *devices[qp.spec.port]; }
    const cc::Limits& limits(const Qp& qp) const { return congestion[qp.spec.port]; }
    PortTally& tally(const Qp& qp) { return tallies[qp.spec.port]; }
};

/// Passes a built frame to the outbox. Called for a frame that is not in the counters of a QP: a CNP, a loss report, or a frame
/// of the conductor (rocid's control thread; engine/gsi.cpp). Adds the frame's bytes to the port's tx_octets at once. The bytes
/// of all other frames are added at the end of the QP's turn (run_queue.hpp).
inline void commit_alone(Context& ctx, uint32_t port, uint8_t* start, uint32_t bytes, const wire::LeftToPort& left,
                         uint32_t sender) {
    ctx.outbox[port].commit(start, bytes, left, sender);
    bump(ctx.tallies[port].tx_octets, bytes);
}

/// Called when the QP has detected a loss, which it reports in the next round. That round sends few frames. A peer on the same
/// engine gets the report at the end of that round. More frames of the peer in that round would only have to be kept. Ports with
/// expensive bursts are excluded, because a burst costs as much with few frames as with many.
inline void loss_detected(Context& ctx, const Qp& qp) { ctx.short_round |= ctx.outbox[qp.spec.port].best_burst() == 1; }

/// Counts a message that the responder has executed, in the counters of the QP and of its port.
inline void count_executed(Context& ctx, Qp& qp, Executed kind) {
    bump(qp.counters.events.rx_messages);
    bump(ctx.tally(qp).executed[size_t(kind)]);
    ctx.latest = 2 * qp.spec.qpn.value;
}
/// Increments a counter of rare events in the QP and in its device. Not inline, because the many calls would lengthen the code
/// of the hot path.
[[gnu::cold, gnu::noinline]] inline void count(Context& ctx, Qp& qp, uint64_t EventCounters::*counter) {
    bump(qp.counters.events.*counter);
    bump(ctx.device(qp).*counter);
}
[[gnu::cold, gnu::noinline]] inline void count(Context& ctx, Qp& qp, RequestFault fault) {
    count(ctx, qp, &EventCounters::requests_refused);
    bump(ctx.device(qp), fault);
}

/// Adds the QP to the run queue of requesters and does not change `has_work`. Called, for example, to send posted requests, to
/// flush the queues of the QP or to report SQ_DRAINED.
inline void activate(Context& ctx, Qp& qp) { ctx.requesters.add(qp); }
/// Like activate(), for a requester that has new work.
inline void activate_requester(Context& ctx, Qp& qp) {
    qp.has_work = true;
    ctx.requesters.add(qp);
}
inline void activate_responder(Context& ctx, Qp& qp) { ctx.responders.add(qp); }
inline void deactivate(Context& ctx, Qp& qp) {
    ctx.requesters.remove(qp);
    ctx.responders.remove(qp);
}

/// Sets the QP's timer to the earliest of its deadlines. If the earliest deadline has moved to a later time, the timer stays
/// unchanged. The timer then fires early and is armed again.
inline void update_timer(Context& ctx, Qp& qp) {
    if (qp.state == State::err) return;  // in ERR, enter_error() uses the timer to flush late receives
    const Nanos due = qp.requester.deadlines.earliest();
    if (due == kNever || (qp.timer.armed() && qp.timer.deadline <= due)) return;
    ctx.wheel.arm(qp.timer, due);
}

/// Reads or writes the memory of a list of SGEs as if the memory were contiguous.
class SgeList {
public:
    SgeList(const Context& ctx, uint32_t pd, std::span<const abi::Sge> sges) : keys_(ctx.shared->keys), pd_(pd), sges_(sges) {}
    /// Copies `length` bytes from position `offset` of the list. Returns false if a key, right or range is wrong (local
    /// protection error), or if the memory cannot be read directly.
    bool gather(uint64_t offset, uint8_t* out, uint32_t length) const;
    /// Returns the location of the bytes in rocid's mapping. The result is empty if the bytes are not within one SGE and one
    /// region of a single segment. The result is also empty if gather() would return false.
    mem::InPlace in_place(uint64_t offset, uint32_t length) const;
    bool scatter(uint64_t offset, const uint8_t* in, uint32_t length) const;
    /// Adds the range [offset, offset + length) of the list to a request for slow memory (mem/slow_memory.hpp). Returns false
    /// if a key, right or range is wrong, or if mem::add() returns false.
    bool describe(uint64_t offset, uint32_t length, uint32_t needed, std::byte* bytes, mem::SlowRequest& request) const;

private:
    template <class Copy>
    bool walk(uint64_t offset, uint32_t length, uint32_t needed, Copy&& copy) const;
    const mem::KeyTable& keys_;
    uint32_t pd_;
    std::span<const abi::Sge> sges_;
};

}  // namespace roci::qp
