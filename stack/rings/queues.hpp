// rocid's end of the shared rings. Each value in shared memory is read once and bounds-checked; the engine works on copies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "abi/control.hpp"
#include "abi/rings.hpp"
#include "abi/wqe.hpp"
#include "io/event.hpp"

namespace roci::rings {

/// Consumer of a client's send queue. The conductor checked its place in the arena when it created the QP.
struct SqView {
    abi::SqShared* shared = nullptr;  ///< the slots follow
    uint32_t depth = 0;               ///< power of two
    uint32_t stride = 0;
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    /// Whether the client has marked the WQE at this index as posted.
    bool posted(uint32_t index) const {
        auto* wqe = reinterpret_cast<abi::SendWqe*>(const_cast<std::byte*>(slot(index)));
        return std::atomic_ref(wqe->phase).load(std::memory_order_acquire) == abi::phase_of(index, depth);
    }
};

/// Where a receive queue or SRQ lies.
struct RqView {
    abi::RqShared* shared = nullptr;  ///< the slots follow
    uint32_t depth = 0;
    uint32_t stride = 0;
    uint32_t max_sge = 0;
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    uint32_t producer() const { return std::atomic_ref(shared->producer).load(std::memory_order_acquire); }
};

/// The engine's place in a receive queue. It reads the client's index seldom: the index is in a cache line of another core, and
/// the client, which writes it with every post, has to fetch the line back.
struct RqCursor {
    uint32_t consumed = 0;  ///< free-running
    uint32_t seen = 0;      ///< last result of producer()
    uint32_t enough = 0;    ///< half of the receives that were posted then
    /// Receives that are known to be posted and not taken. Reads the client's index if there are fewer than `wanted`. A result
    /// above the queue's depth means that the client's index is invalid.
    uint32_t posted(const RqView& queue, uint32_t wanted) {
        if (seen - consumed < wanted) {
            seen = queue.producer();
            enough = (seen - consumed) / 2;
        }
        return seen - consumed;
    }
};

/// Moves a queue to the ring `to` (ibv_modify_srq with IBV_SRQ_MAX_WR), which is unused and has the same stride. Receives that
/// are posted and not taken keep their indices. False, nothing changed: they do not fit, or the producer index is invalid.
[[nodiscard]] bool move_queue(RqView& queue, RqCursor& cursor, const RqView& to);

/// One engine's lane of a CQ. An engine does not access the lanes of other engines.
struct alignas(64) CqLane {
    abi::CqLane* shared = nullptr;
    abi::Cqe* entries = nullptr;
    uint32_t depth = 0;  ///< power of two
    uint32_t produced = 0;
    uint32_t consumer_seen = 0;
    bool dirty = false;        ///< has entries for which notify() has not been called
    bool solicited = false;    ///< one of them is solicited or an error
    bool unsettled = false;    ///< has entries written after the last call of take_sleeper() behind a fence
    uint8_t lies = 0;          ///< consecutive wake-ups that woke no thread
    uint8_t passed_over = 0;   ///< wake-ups omitted because of `lies`
    uint32_t unannounced = 0;  ///< entries since the last notify()
    uint64_t since = 0;        ///< when the first of them was written, nanoseconds
};

/// A completion queue. Only engine e writes lane e. The engines share `fired`; a compare-exchange selects the one that sends an
/// event.
struct Cq {
    abi::CqShared* shared = nullptr;
    CqLane lanes[abi::kMaxEngines];
    uint32_t lane_count = 0;
    uint32_t session = 0;
    uint32_t handle = 0, generation = 0;
    uint32_t channel = abi::kNoHandle;
    uint32_t vector = 0;
    bool ignore_overrun = false;
    std::atomic<uint32_t> fired{0};      ///< last value of `arm` for which an event was sent
    std::atomic<bool> dead{false};       ///< overrun: takes no more entries (IBA 11.6.3.2: CQ in error)
    std::atomic<uint32_t> use_count{0};  ///< QPs attached; conductor
    uint32_t moderation_count = 0, moderation_period_us = 0;
};

/// A thread of a client that may sleep on a word of a CQ. The waker calls woke() with the result of the wake-up.
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

/// Collects an engine's entries and writes them together. The lines of CQs come from the clients' cores: writing entries one by
/// one would wait for each line, writing them together waits for all lines at the same time.
class Completions {
public:
    /// Adds an entry, with `e.seq` set. The client sees it at write_out() at the latest.
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

/// Reserves the next entry of an engine's lane, sets `e.seq`, and adds the entry to `out`. It never overwrites an entry that the
/// client has not polled. If the lane is full, it marks the CQ as dead and returns overrun; the caller raises IBV_EVENT_CQ_ERR if
/// the CQ was not dead before. With ignore_overrun it drops the new entry and returns ok, so that the earlier entries remain
/// readable.
PushResult push(Cq& cq, uint32_t lane, abi::Cqe& e, Completions& out);
/// Moderation (ibv_modify_cq): the time at which this lane's event is due, by the number of entries and the age of the first one.
/// 0: now.
uint64_t event_due(const Cq& cq, const CqLane& lane);
/// Called after a batch of push(): sends a completion event if the CQ is armed for it. False: the event ring is full, or another
/// engine is sending; call again later with the same `solicited`.
bool notify(Cq& cq, bool solicited, io::EventRing& events);
/// Called after entries were written. True: a thread that polls this CQ may be sleeping and must be woken (abi::CqShared). A
/// client can set `sleeping` without sleeping; after some useless wake-ups rocid honours the flag only once in 64 times.
bool take_sleeper(Cq& cq, CqLane& lane);
/// Moves a lane to `to` (resize_cq). The entries from free-running index `consumer` on, which the client has not polled, start at
/// index 0 there. False, nothing changed: `consumer` is invalid or `to` is too small.
[[nodiscard]] bool move_lane(CqLane& lane, const CqLane& to, uint32_t consumer);

}  // namespace roci::rings
