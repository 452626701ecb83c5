// The client's end of the rings: posting and polling. libibverbs, the simulator and the benchmarks use this header. The functions
// make no system call. The structs are not thread-safe: the caller holds the queue's lock. Only free_send() and free_recv() need
// no lock of their queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

#include "rings.hpp"
#include "wqe.hpp"

namespace roci::abi {

/// What a client needs to ring an engine's doorbell: the session's doorbell page for this engine, and the engine's sleeping flag.
struct DoorbellTarget {
    DoorbellPage* page = nullptr;
    const EnginePage::Line* engine = nullptr;
};

/// Rings the doorbell of the QP or SRQ with bit number `slot`. Returns true if the engine sleeps. The caller then writes 1 to the
/// engine's wake eventfd.
[[nodiscard]] inline bool ring_doorbell(const DoorbellTarget& t, uint32_t slot) {
    const uint32_t word = slot / 64;
    std::atomic_ref(t.page->words[word]).fetch_or(uint64_t{1} << (slot % 64), std::memory_order_seq_cst);
    std::atomic_ref(t.page->summary[word / 64]).fetch_or(uint64_t{1} << (word % 64), std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::atomic_ref(const_cast<uint32_t&>(t.engine->sleeping)).load(std::memory_order_relaxed) != 0;
}

/// Executes CLDEMOTE for the cache lines of `bytes` bytes at `from`, because another core reads these lines next. The processor
/// may move the lines to a cache that both cores share. The other core then reads the lines faster. Processors without CLDEMOTE
/// execute the instruction as a no-op.
inline void hand_over([[maybe_unused]] const void* from, [[maybe_unused]] uint64_t bytes) {
#ifdef __x86_64__
    for (uint64_t at = 0; at < bytes; at += kCacheLine) asm volatile("cldemote %0" ::"m"(static_cast<const char*>(from)[at]));
#endif
}

/// The producer of a send queue. The caller fills the slots from `head` on, except their `phase`, and advances `head`. Then the
/// caller calls publish() once.
struct SqProducer {
    SqShared* shared = nullptr;
    std::byte* slots = nullptr;
    uint32_t depth = 0;  ///< power of two
    uint32_t stride = 0;
    uint32_t head = 0;       ///< next index that the caller fills
    uint32_t published = 0;  ///< rocid may take the slots before this index
    uint32_t tail = 0;       ///< oldest index in use; polling threads call free_send(), so access is atomic

    uint32_t free_slots() const {
        return depth - (head - std::atomic_ref(const_cast<uint32_t&>(tail)).load(std::memory_order_acquire));
    }
    SendWqe* slot(uint32_t index) { return reinterpret_cast<SendWqe*>(slots + size_t(index & (depth - 1)) * stride); }
    /// Prefetches the first two cache lines of the next slot, which rocid's core may have in its cache. Without the prefetch, the
    /// writes to the slot would wait for one line after the other.
    void claim() {
        for (uint32_t at = 0; at < stride && at < 2 * kCacheLine; at += kCacheLine)
            __builtin_prefetch(reinterpret_cast<std::byte*>(slot(head)) + at, 1);
    }
    /// Frees the slot of a completed WQE (Cqe::wqe_index) and all slots before it. Polling threads call this function. The CQEs
    /// of a QP are in order, so `tail` only grows.
    void free_send(uint32_t wqe_index) { std::atomic_ref(tail).store(wqe_index + 1, std::memory_order_release); }
    /// Publishes the slots from `published` up to `head`, in reverse order. rocid reads the slots in ascending order. So when
    /// rocid finds the first slot posted, all slots are posted, and rocid does not fetch lines that the client still writes.
    /// Returns true if the QP was idle. The caller then rings the doorbell.
    [[nodiscard]] bool publish() {
        const uint32_t first = published;
        for (uint32_t i = head; i != first; --i) set_phase(i - 1, phase_of(i - 1, depth));
        published = head;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (uint32_t i = first; i != head; ++i) hand_over(slot(i), std::min<uint64_t>(used_bytes(*slot(i)), stride));
        std::atomic_ref idle(shared->idle);
        if (idle.load(std::memory_order_relaxed) == 0) return false;
        return idle.exchange(0, std::memory_order_acq_rel) != 0;
    }
    /// Empties the queue and starts at index 0 again. The caller calls this function after rocid has reset the QP.
    void reset() {
        for (uint32_t i = 0; i < depth; ++i) set_phase(i, 0);
        head = published = tail = 0;
    }

private:
    void set_phase(uint32_t index, uint8_t phase) { std::atomic_ref(slot(index)->phase).store(phase, std::memory_order_release); }
};

/// The producer of a receive queue or SRQ.
struct RqProducer {
    RqShared* shared = nullptr;
    std::byte* slots = nullptr;
    uint32_t depth = 0;
    uint32_t stride = 0;
    uint32_t head = 0;
    uint32_t tail = 0;  ///< polling threads increment `tail`, so access is atomic

    uint32_t free_slots() const {
        return depth - (head - std::atomic_ref(const_cast<uint32_t&>(tail)).load(std::memory_order_acquire));
    }
    RecvWqe* slot(uint32_t index) { return reinterpret_cast<RecvWqe*>(slots + size_t(index & (depth - 1)) * stride); }
    void free_recv() { std::atomic_ref(tail).fetch_add(1, std::memory_order_acq_rel); }
    /// Publishes the slots up to `head`. Returns true if rocid has set `ring`, because the QP is in error. The caller then rings
    /// the doorbell. There is no full fence before the load of `ring`: with a fence each post would wait until the cache line
    /// returns from rocid's core. So the load may return an old value. rocid therefore checks the queue once more some time after
    /// it has set `ring`.
    [[nodiscard]] bool publish() {
        std::atomic_ref(shared->producer).store(head, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler must not move the load before the store
        return std::atomic_ref(shared->ring).load(std::memory_order_relaxed) != 0;
    }
    void reset() { head = tail = 0; }
};

inline Sge* sges(SendWqe* w) { return reinterpret_cast<Sge*>(reinterpret_cast<std::byte*>(w) + kSendWqeHead); }
inline Sge* sges(RecvWqe* w) { return reinterpret_cast<Sge*>(reinterpret_cast<std::byte*>(w) + kRecvWqeHead); }
inline std::byte* inline_data(SendWqe* w) { return reinterpret_cast<std::byte*>(w) + kSendWqeHead; }

/// The consumer of a completion queue.
struct CqConsumer {
    CqShared* shared = nullptr;
    std::byte* lane_base = nullptr;  ///< first CqLane
    uint32_t lanes = 0;
    uint32_t depth = 0;  ///< entries per lane (part of the CQ for one engine), power of two
    uint32_t next_lane = 0;
    uint32_t index[kMaxEngines] = {};

    static size_t lane_bytes(uint32_t depth) { return sizeof(CqLane) + size_t(depth) * sizeof(Cqe); }
    CqLane* lane(uint32_t l) { return reinterpret_cast<CqLane*>(lane_base + l * lane_bytes(depth)); }
    Cqe* entry(uint32_t l, uint32_t i) { return reinterpret_cast<Cqe*>(lane(l) + 1) + (i & (depth - 1)); }

    /// Returns the next valid entry of any lane, or nullptr if all lanes are empty. The pointer is valid until pop().
    const Cqe* peek() {
        for (uint32_t n = 0; n < lanes; ++n) {
            Cqe* e = entry(next_lane, index[next_lane]);
            if (std::atomic_ref(e->seq).load(std::memory_order_acquire) == index[next_lane] + 1) return e;
            next_lane = next_lane + 1 == lanes ? 0 : next_lane + 1;
        }
        return nullptr;
    }
    /// Frees the entry that peek() returned, so that rocid can write a new entry to the slot.
    void pop() {
        const uint32_t i = ++index[next_lane];
        std::atomic_ref(lane(next_lane)->consumer).store(i, std::memory_order_release);
    }
    /// Sets CqShared::sleeping to 1 before this thread sleeps. Returns the futex word on which the thread sleeps, or nullptr if
    /// the CQ has an entry. In the second case the thread must not sleep.
    uint32_t* prepare_sleep() {
        std::atomic_ref(shared->sleeping).store(1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return peek() == nullptr ? &shared->sleeping : nullptr;
    }
    /// Requests an event for the next entry or, with `solicited_only`, for the next entry that is solicited or reports an error.
    /// The caller polls once more afterwards. While a request without `solicited_only` is pending, `solicited_only` has no effect
    /// (IBA 11.4.2.2).
    void arm(bool solicited_only) {
        std::atomic_ref a(shared->arm);
        const uint32_t last = a.load(std::memory_order_relaxed);
        const bool awaits_any = (last & 1) == 0 && std::atomic_ref(shared->fired).load(std::memory_order_relaxed) != last;
        const uint32_t next = (last & ~1u) + 2;
        a.store(next | (solicited_only && !awaits_any ? 1 : 0), std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
};

}  // namespace roci::abi
