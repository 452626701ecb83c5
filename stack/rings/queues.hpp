// rocid's end of the shared rings. Every value read from shared memory is read once and bounded; the engine works on copies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "abi/control.hpp"
#include "abi/rings.hpp"
#include "abi/wqe.hpp"
#include "io/event.hpp"

namespace roci::rings {

/// Consumer of a client's send queue: spans of the arena, checked by the conductor when the QP was created.
struct SqView {
    abi::SqShared* shared = nullptr;  ///< the slots follow
    uint32_t depth = 0;               ///< power of two
    uint32_t stride = 0;
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    /// Whether the client says that the WQE at this index is posted.
    bool posted(uint32_t index) const {
        auto* wqe = reinterpret_cast<abi::SendWqe*>(const_cast<std::byte*>(slot(index)));
        return std::atomic_ref(wqe->phase).load(std::memory_order_acquire) == abi::phase_of(index, depth);
    }
};

/// Consumer of a receive queue or SRQ. The client's index is asked for seldom: its line comes from another core, and the client,
/// which writes it with every receive, then has to fetch it back.
struct RqView {
    abi::RqShared* shared = nullptr;  ///< the slots follow
    uint32_t depth = 0;
    uint32_t stride = 0;
    uint32_t max_sge = 0;
    uint32_t consumed = 0;  ///< free-running; engine-private
    uint32_t seen = 0;      ///< producer() when it was last asked for
    uint32_t enough = 0;    ///< half of what was posted then
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    uint32_t producer() const { return std::atomic_ref(shared->producer).load(std::memory_order_acquire); }
    /// Receives that are known to be posted and not taken; asks the client if they are fewer than `wanted`. More than `depth`: a
    /// lie.
    uint32_t posted(uint32_t wanted) {
        if (seen - consumed < wanted) {
            seen = producer();
            enough = (seen - consumed) / 2;
        }
        return seen - consumed;
    }
};

/// ibv_modify_srq(IBV_SRQ_MAX_WR): the queue lives in `to` afterwards, a ring of the same stride that nobody else uses yet. What
/// was posted and not taken moves there and keeps its indices. False, nothing changed: it does not fit, or the producer index is
/// a lie.
[[nodiscard]] bool move_queue(RqView& queue, const RqView& to);

/// One engine's lane of a CQ; engines do not touch each other's lines.
struct alignas(64) CqLane {
    abi::CqLane* shared = nullptr;
    abi::Cqe* entries = nullptr;
    uint32_t depth = 0;  ///< power of two
    uint32_t produced = 0;
    uint32_t consumer_seen = 0;
    bool dirty = false;        ///< got entries that notify() has not been called for
    bool solicited = false;    ///< one of them is solicited, or an error
    bool unsettled = false;    ///< got entries since take_sleeper() was last called after a fence
    uint8_t lies = 0;          ///< wake-ups in a row that woke nobody
    uint8_t passed_over = 0;   ///< since a liar was last believed
    uint32_t unannounced = 0;  ///< entries since the last notify()
    uint64_t since = 0;        ///< when the first of them was written, nanoseconds
};

/// A completion queue. Lane e is written by engine e only; `fired` is shared by the engines (an exchange decides who fires).
struct Cq {
    abi::CqShared* shared = nullptr;
    CqLane lanes[abi::kMaxEngines];
    uint32_t lane_count = 0;
    uint32_t session = 0;
    uint32_t handle = 0, generation = 0;
    uint32_t channel = abi::kNoHandle;
    uint32_t vector = 0;
    bool ignore_overrun = false;
    std::atomic<uint32_t> fired{0};      ///< last value of `arm` that an event was sent for
    std::atomic<bool> dead{false};       ///< overrun: takes no more entries (IBA 11.6.3.2: CQ in error)
    std::atomic<uint32_t> use_count{0};  ///< QPs attached; conductor
    uint32_t moderation_count = 0, moderation_period_us = 0;
};

/// A thread of a client that sleeps on a word of a CQ. `woke()` is called with whether the wake-up woke somebody.
struct Sleeper {
    uint32_t* word = nullptr;
    CqLane* lane = nullptr;
    void woke(bool somebody) const {
        if (somebody)
            lane->lies = 0;
        else if (lane->lies != UINT8_MAX)
            ++lane->lies;
    }
};

/// Entries of an engine on their way to clients. Their lines come from the clients' cores; written one by one, as they arise,
/// each would be waited for; written together, all are waited for at once.
class Completions {
public:
    /// The client sees it at write_out() at the latest. `e.seq` is set.
    void add(abi::Cqe& slot, const abi::Cqe& e) {
        if (count_ == kRoom) write_out();
        slots_[count_] = &slot;
        entries_[count_++] = e;
    }
    void write_out();

private:
    static constexpr uint32_t kRoom = 32;
    uint32_t count_ = 0;
    std::array<abi::Cqe*, kRoom> slots_;
    alignas(64) std::array<abi::Cqe, kRoom> entries_;
};

enum class PushResult : uint8_t { ok, overrun };

/// Takes the next place of engine `lane`'s lane for one entry, which is `out`'s to write. `e.seq` is set here. An entry that the
/// client has not polled is never overwritten: on a full lane the CQ is dead from then on and the result is overrun (the caller
/// raises IBV_EVENT_CQ_ERR, once: see `dead` before the call); with ignore_overrun the new entry is dropped and the result is ok,
/// so that the entries already there stay readable.
PushResult push(Cq& cq, uint32_t lane, abi::Cqe& e, Completions& out);
/// Moderation (ibv_modify_cq): so many entries, or so long after the first of them, until which this lane's event waits. 0: now.
uint64_t event_due(const Cq& cq, const CqLane& lane);
/// After a batch of push(): sends a completion event if the CQ is armed for it. False: event ring full or another engine was
/// about to, call again later (with the same `solicited`).
bool notify(Cq& cq, bool solicited, engine::EventRing& events);
/// After entries were written: true if a thread that polls this CQ may sleep and is to be woken (abi::CqShared). `sleeping` is
/// the client's to write: whoever raises it and does not sleep is soon believed once in 64 times only.
bool take_sleeper(Cq& cq, CqLane& lane);
/// resize_cq for one lane: the entries from free-running index `consumer` on (what the client has not polled) move to `to`, there
/// from index 0 on, and the lane lives in `to` afterwards. False, nothing changed: `consumer` is a lie or `to` is too small.
[[nodiscard]] bool move_lane(CqLane& lane, const CqLane& to, uint32_t consumer);

}  // namespace roci::rings
