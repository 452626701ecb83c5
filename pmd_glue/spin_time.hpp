// Chooses for how long an idle lcore polls before it sleeps. A wake-up from sleep takes tens of microseconds. If two programs
// exchange messages, each message would wait for such a wake-up at both engines. So after a short sleep, the lcore polls for
// longer. After a long sleep, it polls for the configured time again.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::pmd {

class SpinTime {
public:
    /// `least` is the configured time. `slow_least` is a lower limit of the longest time. It is above kMost * `least` on a
    /// processor on which the work between two messages takes longer than usual, for example an emulated one.
    explicit SpinTime(Nanos least, Nanos slow_least = 0)
        : least_(least), most_(least == 0 ? 0 : std::max(kMost * least, slow_least)), now_(least) {}
    Nanos get() const { return now_; }
    /// Chooses the polling time that follows a sleep of `slept`. A sleep shorter than the longest polling time doubles the
    /// polling time, because the lcore would have done better to poll. Any other sleep restores the configured time.
    void slept(Nanos slept) { now_ = slept < most_ ? std::min(2 * now_, most_) : least_; }

    /// The longest time, as a multiple of the configured time.
    static constexpr Nanos kMost = 4;

private:
    Nanos least_, most_, now_;
};

}  // namespace roci::pmd
