// Prefetches the memory that a key and an address refer to. There are three steps: the slot of the key, then the region, then
// the memory. Each step reads the data that the previous step has prefetched, so the caller lets some time pass between two
// steps. Invalid keys and addresses are harmless. For a region with several segments, the prefetched address is useful only if
// it lies in the first segment.
#pragma once

#include "mem/memory_region.hpp"

namespace roci::mem {

inline constexpr uint32_t kPrefetchSteps = 3;

template <uint32_t step>
void prefetch(const KeyTable& keys, Key key, uint64_t va) {
    static_assert(step < kPrefetchSteps);
    if constexpr (step == 0) return keys.prefetch(key);
    const MemoryRegion* r = keys.in_slot(key);
    if (r == nullptr) return;
    if constexpr (step == 1) {
        __builtin_prefetch(r);
        __builtin_prefetch(reinterpret_cast<const std::byte*>(r) + 64);
    }
    if constexpr (step == 2) {
        if (r->segments.empty()) return;
        __builtin_prefetch(r->segments.front().mapped);
        if (r->segments.front().base != nullptr)
            // computed as an integer, because an address from a peer may lie outside of the object
            __builtin_prefetch(
                reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(r->segments.front().base) + (va - r->iova)));
    }
}

}  // namespace roci::mem
