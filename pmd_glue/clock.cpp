#include "clock.hpp"

#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace roci::pmd {
namespace {

constexpr uint64_t kNanosPerSecond = 1'000'000'000;

bool tsc_is_invariant() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kPowerLeaf = 0x80000007, kInvariantTsc = 1u << 8;
    return __get_cpuid(kPowerLeaf, &a, &b, &c, &d) != 0 && (d & kInvariantTsc) != 0;
#else
    return true;  // on ARMv8, the counter of the generic timer is invariant
#endif
}

struct Reading {
    uint64_t tsc = 0;
    Nanos time = 0;
};

/// Reads the TSC and CLOCK_MONOTONIC at nearly the same time. Makes several such readings and returns the one that took the
/// shortest time.
Reading read_both() {
    Reading best;
    uint64_t shortest = ~uint64_t{0};
    for (int i = 0; i < 16; ++i) {
        const uint64_t before = rte_get_tsc_cycles();
        const Nanos time = Clock::monotonic();
        const uint64_t took = rte_get_tsc_cycles() - before;
        if (took >= shortest) continue;
        shortest = took;
        best = {before + took / 2, time};
    }
    return best;
}

/// Measures the rate of the TSC in Hz by CLOCK_MONOTONIC. DPDK rounds its own measurement to 10 MHz. With the rounded rate, the
/// clock could drift by up to 0.2 %.
uint64_t measured_hz() {
    constexpr timespec kPause{0, 50'000'000};
    const Reading first = read_both();
    nanosleep(&kPause, nullptr);
    const Reading last = read_both();
    return uint64_t(static_cast<Uint128>(last.tsc - first.tsc) * kNanosPerSecond / (last.time - first.time));
}

uint64_t scale_of(uint64_t hz) { return uint64_t((static_cast<Uint128>(kNanosPerSecond) << 32) / hz); }

}  // namespace

Nanos Clock::monotonic() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanos(t.tv_sec) * kNanosPerSecond + Nanos(t.tv_nsec);
}

int64_t Clock::to_realtime() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return int64_t(t.tv_sec) * int64_t(kNanosPerSecond) + t.tv_nsec - int64_t(monotonic());
}

Clock::Clock() {
    if (!tsc_is_invariant() || rte_get_tsc_hz() == 0) return;
    const uint64_t hz = measured_hz();
    const Reading now = read_both();
    *this = Clock(hz, now.tsc, now.time);
}

Clock::Clock(uint64_t hz, uint64_t base_tsc, Nanos base) : scale_(scale_of(hz)), base_tsc_(base_tsc), base_(base) {}

}  // namespace roci::pmd
