// rocid's end of the doorbell protocol (the rule: abi/rings.hpp): collecting rung slots, and stopping to watch a send queue.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "rings/queues.hpp"

namespace roci::rings {

/// True if a doorbell may be set. Called after the sleeping flag was raised (full fence between).
inline bool doorbell_pending(abi::DoorbellPage& page) {
    for (uint64_t& word : page.summary)
        if (std::atomic_ref(word).load(std::memory_order_seq_cst) != 0) return true;
    return false;
}

/// Clears all doorbells that are set and calls visit(slot) for each. Summary before words, the opposite of a client's order, so
/// that a bit set meanwhile is either taken now or leaves its summary bit for the next time. Work is bounded by kDoorbellSlots
/// whatever a client writes.
template <class Visit>
void collect_doorbells(abi::DoorbellPage& page, Visit visit) {
    for (uint32_t s = 0; s < std::size(page.summary); ++s) {
        std::atomic_ref summary(page.summary[s]);
        if (summary.load(std::memory_order_relaxed) == 0) continue;
        for (uint64_t words = summary.exchange(0, std::memory_order_seq_cst); words != 0; words &= words - 1) {
            const uint32_t w = s * 64 + uint32_t(std::countr_zero(words));
            for (uint64_t bits = std::atomic_ref(page.words[w]).exchange(0, std::memory_order_seq_cst); bits != 0;
                 bits &= bits - 1)
                visit(w * 64 + uint32_t(std::countr_zero(bits)));
        }
    }
}

/// To stop watching a send queue takes two steps and a full fence between them, which many queues may share. The first: from now
/// on the client rings. What `idle` was is not asked: a load would wait for the line, a store does not.
inline void announce_idle(const SqView& sq) { std::atomic_ref(sq.shared->idle).store(1, std::memory_order_release); }
/// After the fence; WQEs before `taken` have been read. False: there are new ones, go on watching. A doorbell may have been rung
/// for them as well; it is then a spurious one.
inline bool stays_idle(const SqView& sq, uint32_t taken) {
    if (!sq.posted(taken)) return true;
    std::atomic_ref(sq.shared->idle).store(0, std::memory_order_relaxed);
    return false;
}

}  // namespace roci::rings
