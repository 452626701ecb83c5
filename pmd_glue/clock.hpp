// The clock of the lcores: nanoseconds of CLOCK_MONOTONIC, read from the TSC without a system call.
#pragma once

#include <rte_cycles.h>

#include "time_source.hpp"

namespace roci::pmd {

__extension__ typedef unsigned __int128 Uint128;

/// Starts at CLOCK_MONOTONIC of its construction and advances at the TSC's rate. If the TSC is not invariant (it may stop or
/// change its rate), every reading is a clock_gettime, which is slower.
class Clock final : public TimeSource {
public:
    /// After EAL init. Measures the rate of the TSC for 50 ms.
    Clock();
    /// For tests: a TSC of `hz`, which starts at `base_tsc` = `base`.
    Clock(uint64_t hz, uint64_t base_tsc, Nanos base);

    Nanos now() const override { return scale_ == 0 ? monotonic() : at(rte_get_tsc_cycles()); }
    /// The time at a TSC reading that is not older than the clock.
    Nanos at(uint64_t tsc) const { return base_ + Nanos((static_cast<Uint128>(tsc - base_tsc_) * scale_) >> kShift); }
    bool uses_tsc() const { return scale_ != 0; }
    static Nanos monotonic();
    /// What to add to a time of this clock to get nanoseconds since 1970.
    static int64_t to_realtime();

private:
    static constexpr unsigned kShift = 32;
    uint64_t scale_ = 0;  ///< nanoseconds a tick, times 2^32; 0: no TSC
    uint64_t base_tsc_ = 0;
    Nanos base_ = 0;
};

}  // namespace roci::pmd
