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
    return true;  // the generic timer of other machines is
#endif
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
    *this = Clock(rte_get_tsc_hz(), rte_get_tsc_cycles(), monotonic());
}

Clock::Clock(uint64_t hz, uint64_t base_tsc, Nanos base) : scale_(scale_of(hz)), base_tsc_(base_tsc), base_(base) {}

}  // namespace roci::pmd
