// Bytes that a key and an address name, asked for ahead of their use. The way there is a chain of three places in memory; each
// step reads what the one before asked for, so some time should pass between them. Wrong keys and addresses do no harm.
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
            // As a number: an address that a peer made up is no offset into anything.
            __builtin_prefetch(
                reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(r->segments.front().base) + (va - r->iova)));
    }
}

}  // namespace roci::mem
