#include "rings/queues.hpp"

#include <cstddef>
#include <cstring>

#include "base/stage.hpp"

namespace roci::rings {
namespace {

/// Reads the client's `consumer`. A valid value lies between the last valid value and `produced`. An invalid value is ignored.
/// In the worst case the lane then stays full.
void refresh_consumer(CqLane& lane) {
    const uint32_t said = std::atomic_ref(lane.shared->consumer).load(std::memory_order_acquire);
    if (lane.produced - said <= lane.produced - lane.consumer_seen) lane.consumer_seen = said;
}

bool full(const CqLane& lane) { return lane.produced - lane.consumer_seen >= lane.depth; }

/// Writes all fields except `seq`, then `seq` with release order, so a reader that sees the new `seq` also sees the other fields.
/// The entry is copied in pieces that do not overlap, because a load that spans two pending stores waits for both.
void write_entry(abi::Cqe& slot, const abi::Cqe& e, uint32_t seq) {
    auto* to = reinterpret_cast<std::byte*>(&slot);
    auto* from = reinterpret_cast<const std::byte*>(&e);
    constexpr size_t kVectors = offsetof(abi::Cqe, seq) / 16 * 16;
    std::memcpy(to, from, kVectors);
    for (size_t at = kVectors; at < offsetof(abi::Cqe, seq); at += 4) std::memcpy(to + at, from + at, 4);
    std::atomic_ref(slot.seq).store(seq, std::memory_order_release);
}

}  // namespace

void Completions::write_out() {
    ROCI_STAGE(cqe);
    for (uint32_t i = 0; i < count_; ++i) __builtin_prefetch(slots_[i], 1);
    for (uint32_t i = 0; i < count_; ++i) write_entry(*slots_[i], entries_[i], entries_[i].seq);
    count_ = 0;
}

PushResult push(Cq& cq, uint32_t lane_index, abi::Cqe& e, Completions& out) {
    if (cq.dead.load(std::memory_order_relaxed)) return PushResult::overrun;
    CqLane& lane = cq.lanes[lane_index];
    if (full(lane)) refresh_consumer(lane);
    if (full(lane)) {
        if (cq.ignore_overrun) return PushResult::ok;
        cq.dead.store(true, std::memory_order_release);
        return PushResult::overrun;
    }
    const uint32_t i = lane.produced++;
    e.seq = lane.produced;
    out.add(lane.entries[i & (lane.depth - 1)], e);
    return PushResult::ok;
}

uint64_t event_due(const Cq& cq, const CqLane& lane) {
    const uint32_t count = std::atomic_ref(const_cast<uint32_t&>(cq.moderation_count)).load(std::memory_order_relaxed);
    const uint64_t period = std::atomic_ref(const_cast<uint32_t&>(cq.moderation_period_us)).load(std::memory_order_relaxed);
    // Without a count or without a period, events are not moderated. A count alone could delay an event forever.
    return count == 0 || period == 0 || lane.unannounced >= count ? 0 : lane.since + period * 1000;
}

bool notify(Cq& cq, bool solicited, io::EventRing& events) {
    if (cq.channel == abi::kNoHandle) return true;
    // rocid writes the entry, then reads `arm`. The client writes `arm`, then reads entries. With a full fence on both sides,
    // at least one side reads the value that the other side has written.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint32_t arm = std::atomic_ref(cq.shared->arm).load(std::memory_order_acquire);
    uint32_t fired = cq.fired.load(std::memory_order_relaxed);
    if (arm == fired || ((arm & 1) != 0 && !solicited)) return true;
    // Several engines may call this function for one CQ at the same time. The engine that changes `fired` sends the event. Each
    // other engine either finds that the event for this `arm` was sent, or tries again later.
    if (!cq.fired.compare_exchange_strong(fired, arm, std::memory_order_acq_rel)) return fired == arm;
    const io::Event event{.kind = io::Event::Kind::completion,
                          .session = cq.session,
                          .type = 0,
                          .handle = cq.handle,
                          .generation = cq.generation,
                          .channel = cq.channel,
                          .vector = cq.vector};
    if (events.push(event)) {
        std::atomic_ref(cq.shared->fired).store(arm, std::memory_order_relaxed);
        return true;
    }
    // Sets `fired` back, unless another engine has sent an event for a newer `arm` meanwhile. The event of the other engine is
    // then sufficient.
    uint32_t mine = arm;
    return !cq.fired.compare_exchange_strong(mine, fired, std::memory_order_acq_rel);
}

bool take_sleeper(Cq& cq, CqLane& lane) {
    constexpr uint8_t kLies = 16, kBelievedOnceIn = 64;
    std::atomic_ref sleeping(cq.shared->sleeping);
    if (sleeping.load(std::memory_order_relaxed) == 0) return false;
    if (lane.lies >= kLies && ++lane.passed_over % kBelievedOnceIn != 0) return false;
    sleeping.store(0, std::memory_order_relaxed);
    return true;
}

bool move_queue(RqView& queue, RqCursor& cursor, const RqView& to) {
    const uint32_t producer = queue.producer();
    const uint32_t left = producer - cursor.consumed;
    if (left > queue.depth || left > to.depth) return false;
    for (uint32_t i = cursor.consumed; i != producer; ++i)
        std::memcpy(const_cast<std::byte*>(to.slot(i)), queue.slot(i), queue.stride);
    std::atomic_ref(to.shared->producer).store(producer, std::memory_order_release);
    queue = to;
    cursor.seen = producer;
    cursor.enough = 0;
    return true;
}

bool move_lane(CqLane& lane, const CqLane& to, uint32_t consumer) {
    const uint32_t left = lane.produced - consumer;
    if (left > lane.produced - lane.consumer_seen || left > lane.depth || left > to.depth) return false;
    CqLane moved = to;
    for (uint32_t i = 0; i < left; ++i)
        write_entry(to.entries[i & (to.depth - 1)], lane.entries[(consumer + i) & (lane.depth - 1)], i + 1);
    moved.produced = left;
    moved.consumer_seen = 0;
    lane = moved;
    return true;
}

}  // namespace roci::rings
