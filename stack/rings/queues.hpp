// rocid's end of the shared rings. Indices from a client are bounds-checked before use. The engine works on copies of the
// entries.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "abi/control.hpp"
#include "abi/rings.hpp"
#include "abi/wqe.hpp"
#include "io/event.hpp"

namespace roci::rings {

/// Location of a client's send queue. The conductor (rocid's control thread) has checked that the queue lies within the memory
/// that rocid shares with the client.
struct SqView {
    abi::SqShared* shared = nullptr;  ///< the slots follow this header
    uint32_t depth = 0;               ///< power of two
    uint32_t stride = 0;
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    /// Returns true if the client has marked the WQE at this index as posted.
    bool posted(uint32_t index) const {
        auto* wqe = reinterpret_cast<abi::SendWqe*>(const_cast<std::byte*>(slot(index)));
        return std::atomic_ref(wqe->phase).load(std::memory_order_acquire) == abi::phase_of(index, depth);
    }
};

/// Location of a client's receive queue or SRQ.
struct RqView {
    abi::RqShared* shared = nullptr;  ///< the slots follow this header
    uint32_t depth = 0;
    uint32_t stride = 0;
    uint32_t max_sge = 0;
    const std::byte* slot(uint32_t index) const {
        return reinterpret_cast<const std::byte*>(shared + 1) + size_t(index & (depth - 1)) * stride;
    }
    uint32_t producer() const { return std::atomic_ref(shared->producer).load(std::memory_order_acquire); }
};

/// The engine's position in a receive queue. The client writes the cache line of its index with every post. Each read of the
/// index by the engine makes the client fetch this cache line again. Therefore the engine seldom reads the index.
struct RqCursor {
    uint32_t consumed = 0;  ///< free-running index of the next receive
    uint32_t seen = 0;      ///< last value of producer()
    uint32_t enough = 0;    ///< half of the number of receives that were posted and not taken when `seen` was read
    /// Returns the number of receives that are known to be posted and not yet taken. Reads the client's index if that number is
    /// less than `wanted`. A result above the queue's depth means that the client's index is invalid.
    uint32_t posted(const RqView& queue, uint32_t wanted) {
        if (seen - consumed < wanted) {
            seen = queue.producer();
            enough = (seen - consumed) / 2;
        }
        return seen - consumed;
    }
};

/// Moves a queue to the unused ring `to`, which has the same stride (ibv_modify_srq with IBV_SRQ_MAX_WR). Receives that are
/// posted and not taken keep their indices. Returns false, and changes nothing, if `to` is too small or the producer index is
/// invalid.
[[nodiscard]] bool move_queue(RqView& queue, RqCursor& cursor, const RqView& to);

/// One engine's part of a CQ, with its own ring of entries. An engine does not access the lanes of other engines.
struct alignas(64) CqLane {
    abi::CqLane* shared = nullptr;
    abi::Cqe* entries = nullptr;
    uint32_t depth = 0;  ///< power of two
    uint32_t produced = 0;
    uint32_t consumer_seen = 0;
    bool dirty = false;        ///< has entries for which notify() has not returned true
    bool solicited = false;    ///< one of the entries since the last notify() is solicited or reports an error
    bool unsettled = false;    ///< has entries for which take_sleeper() was not yet called after a fence
    uint8_t lies = 0;          ///< number of consecutive wake-ups that found no sleeping thread, at most 255
    uint8_t passed_over = 0;   ///< number of wake-ups requested since `lies` reached its limit, modulo 256
    uint32_t unannounced = 0;  ///< number of entries since the last notify()
    uint64_t since = 0;        ///< time when the first entry since the last notify() was written, ns
};

/// A completion queue. Engine e writes only lane e. The engines share `fired`; a compare-exchange selects the engine that sends
/// an event.
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
    std::atomic<bool> dead{false};       ///< no more entries, after an overrun or a failed resize (IBA 11.6.3.2: CQ in error)
    std::atomic<uint32_t> use_count{0};  ///< number of QPs attached; used by the conductor
    uint32_t moderation_count = 0, moderation_period_us = 0;
};

/// A thread of a client that may sleep on the futex `word` of a CQ. After each wake-up, rocid calls woke() with the result.
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

/// Collects an engine's entries and writes them to the CQs together. The cache lines of CQs come from the clients' cores. If
/// the engine wrote entries one by one, it would wait for each cache line in turn. With a batch, the engine waits for all lines
/// at the same time.
class Completions {
public:
    /// Adds an entry whose `seq` is set. The client can see the entry at the latest after write_out().
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

/// Reserves the next entry of an engine's lane, sets `e.seq`, and adds the entry to `out`. Never overwrites an entry that the
/// client has not polled. If the lane is full and ignore_overrun is set, drops the new entry and returns ok. If the lane is full
/// and ignore_overrun is not set, marks the CQ as dead and returns overrun. Returns overrun for every further entry of a dead CQ.
/// The caller raises IBV_EVENT_CQ_ERR only if the CQ was not dead before.
PushResult push(Cq& cq, uint32_t lane, abi::Cqe& e, Completions& out);
/// Returns the time at which the completion event of this lane is due under moderation (ibv_modify_cq): one period after the
/// first entry. Returns 0 if the event is due now, because the lane has enough entries or there is no moderation.
uint64_t event_due(const Cq& cq, const CqLane& lane);
/// Called after a batch of push(). Sends a completion event if the CQ is armed for an event of this kind. Returns false if the
/// event ring is full or another engine is sending. The caller then calls again later with the same `solicited`.
bool notify(Cq& cq, bool solicited, io::EventRing& events);
/// Called after entries were written. Returns true if a thread that polls this CQ may be sleeping and must be woken
/// (abi::CqShared). A client can set `sleeping` without sleeping. Therefore, after 16 consecutive wake-ups that found no
/// sleeping thread, the function returns true only for one in 64 calls.
bool take_sleeper(Cq& cq, CqLane& lane);
/// Moves a lane to the memory of `to` (resize_cq). The entries that the client has not polled begin at the free-running index
/// `consumer`. In the new memory, these entries begin at index 0. Returns false, and changes nothing, if `consumer` is invalid
/// or `to` is too small.
[[nodiscard]] bool move_lane(CqLane& lane, const CqLane& to, uint32_t consumer);

}  // namespace roci::rings
