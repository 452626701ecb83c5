// bump() adds to a counter that one thread writes and any thread may read. With ROCI_UNCOUNTED, bump() does nothing, so that
// the cost of the counters can be measured (tests/bench/cost.py). All counters of the transport use bump(), except
// Counters::tx_bytes. The engine itself needs this counter, even with ROCI_UNCOUNTED.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROCI_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define ROCI_SANITIZED 1
#endif
#endif

namespace roci {

#if defined(ROCI_UNCOUNTED)
inline constexpr bool kCounted = false;
#else
inline constexpr bool kCounted = true;
#endif

/// Adds `n`. Readers use a relaxed load. The counter has one writer, so no locked instruction is needed. Compilers emit three
/// instructions for a relaxed load, an addition and a relaxed store. On x86-64 one ADD to memory suffices, because the ADD stores
/// an aligned word indivisibly.
inline void bump([[maybe_unused]] uint64_t& value, [[maybe_unused]] uint64_t n = 1) {
#if defined(ROCI_UNCOUNTED)
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(ROCI_SANITIZED)
    asm("addq %1, %0" : "+m"(value) : "er"(n) : "cc");
#else
    std::atomic_ref a(value);
    a.store(a.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
}

}  // namespace roci
