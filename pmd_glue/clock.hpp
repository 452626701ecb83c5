// The clock of the lcores. The clock returns nanoseconds of CLOCK_MONOTONIC. If the TSC is invariant, the clock computes the time
// from the TSC without a system call.
#pragma once

#include <rte_cycles.h>

#include "base/time_source.hpp"

namespace roci::pmd {

__extension__ typedef unsigned __int128 Uint128;

/// The clock starts at the value of CLOCK_MONOTONIC at construction and advances at the TSC's rate. A TSC that is not invariant
/// may stop or change its rate. With such a TSC, now() calls the slower clock_gettime().
class Clock final : public TimeSource {
public:
    /// Must be called after the initialisation of EAL. Measures the rate of the TSC for 50 ms.
    Clock();
    /// For tests: assumes a TSC of `hz` Hz whose reading `base_tsc` corresponds to the time `base`.
    Clock(uint64_t hz, uint64_t base_tsc, Nanos base);

    Nanos now() const override { return scale_ == 0 ? monotonic() : at(rte_get_tsc_cycles()); }
    /// Returns the time at a TSC reading that was taken after the clock was constructed.
    Nanos at(uint64_t tsc) const { return base_ + Nanos((static_cast<Uint128>(tsc - base_tsc_) * scale_) >> kShift); }
    bool uses_tsc() const { return scale_ != 0; }
    static Nanos monotonic();
    /// Returns the number of nanoseconds that must be added to a time of this clock to obtain nanoseconds since 1970.
    static int64_t to_realtime();

private:
    static constexpr unsigned kShift = 32;
    uint64_t scale_ = 0;  ///< nanoseconds per tick, times 2^32; 0: the TSC is not used
    uint64_t base_tsc_ = 0;
    Nanos base_ = 0;
};

}  // namespace roci::pmd
