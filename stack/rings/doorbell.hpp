// rocid's end of the doorbell protocol (see SqShared in abi/rings.hpp). These functions collect doorbells and mark send queues
// as idle.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "rings/queues.hpp"

namespace roci::rings {

/// Returns true if a doorbell is possibly set, and false if no doorbell is set. Before this call, the caller has set the sleeping
/// flag and executed a full fence.
inline bool doorbell_pending(abi::DoorbellPage& page) {
    for (uint64_t& word : page.summary)
        if (std::atomic_ref(word).load(std::memory_order_seq_cst) != 0) return true;
    return false;
}

/// Returns true if a client has set a bit in the summary of the page. This check must be fast, because each round of an engine
/// performs the check, and most rounds find no doorbell.
inline bool any_doorbell(abi::DoorbellPage& page) {
    uint64_t any = 0;
#pragma GCC unroll 16
    for (uint64_t& word : page.summary) any |= std::atomic_ref(word).load(std::memory_order_relaxed);
    return any != 0;
}

/// Clears the doorbells that are set and calls visit(slot) for each of them. Returns the number of doorbells plus the number of
/// empty words whose summary bit a client has set. The scan begins at word `from` of the page. The scan ends after the word in
/// which this number reaches `most`. Then the remaining doorbells stay set, and `from` is set to the word where the next call
/// begins. The function clears the summary before the words, and a client sets the word before the summary. A doorbell that is
/// set meanwhile is therefore collected now, or its summary bit remains set for the next call. kDoorbellSlots bounds the work,
/// whatever a client writes.
template <class Visit>
uint32_t collect_doorbells(abi::DoorbellPage& page, uint32_t& from, uint32_t most, Visit visit) {
    if (!any_doorbell(page)) return 0;
    constexpr uint32_t kSummaries = std::size(decltype(page.summary){});
    const uint32_t first = from / 64;
    const uint64_t above = ~uint64_t{0} << (from % 64);
    uint32_t count = 0;
    // The first summary word is visited twice: at the beginning its part from `from` on, at the end its part below `from`.
    for (uint32_t i = 0; i <= kSummaries; ++i) {
        const uint32_t s = (first + i) % kSummaries;
        std::atomic_ref summary(page.summary[s]);
        const uint64_t mine = i == 0 ? above : i == kSummaries ? ~above : ~uint64_t{0};
        if ((summary.load(std::memory_order_relaxed) & mine) == 0) continue;
        for (uint64_t words = summary.fetch_and(~mine, std::memory_order_seq_cst) & mine; words != 0; words &= words - 1) {
            const uint32_t w = s * 64 + uint32_t(std::countr_zero(words));
            if (count >= most) {
                summary.fetch_or(words, std::memory_order_seq_cst);
                from = w;
                return count;
            }
            uint64_t bits = std::atomic_ref(page.words[w]).exchange(0, std::memory_order_seq_cst);
            if (bits == 0) ++count;  // a summary bit without a doorbell costs as much as a doorbell
            for (; bits != 0; bits &= bits - 1) {
                visit(w * 64 + uint32_t(std::countr_zero(bits)));
                ++count;
            }
        }
    }
    return count;
}
/// Collects all doorbells that are set.
template <class Visit>
void collect_doorbells(abi::DoorbellPage& page, Visit visit) {
    uint32_t from = 0;
    collect_doorbells(page, from, abi::kDoorbellSlots, visit);
}

/// Executes the first of two steps by which the engine stops polling a send queue. A full fence separates the steps. Many
/// queues may share one fence. After this step, the client rings the doorbell when it posts. The step does not read `idle`,
/// because a load would wait for the cache line.
inline void announce_idle(const SqView& sq) { std::atomic_ref(sq.shared->idle).store(1, std::memory_order_release); }
/// Executes the second step, after the fence. The engine has fetched the WQEs before index `taken`. Returns false if the client
/// has posted more WQEs; the engine then continues to poll the queue. A doorbell for these WQEs is harmless.
inline bool stays_idle(const SqView& sq, uint32_t taken) {
    if (!sq.posted(taken)) return true;
    std::atomic_ref(sq.shared->idle).store(0, std::memory_order_relaxed);
    return false;
}

}  // namespace roci::rings
