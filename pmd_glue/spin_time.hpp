// Chooses for how long an idle lcore polls before it sleeps. A wake-up from sleep takes tens of microseconds. If two programs
// exchange messages, each message would wait for such a wake-up at both engines. So after a short sleep, the lcore polls for
// longer. After a long sleep, it polls for the configured time again.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::pmd {

class SpinTime {
public:
    /// `least` is the configured time.
    explicit SpinTime(Nanos least) : least_(least), now_(least) {}
    Nanos get() const { return now_; }
    /// Chooses the polling time that follows a sleep of `slept`. A sleep shorter than the longest polling time doubles the
    /// polling time, because the lcore would have done better to poll. Any other sleep restores the configured time.
    void slept(Nanos slept) { now_ = slept < kMost * least_ ? std::min(2 * now_, kMost * least_) : least_; }

    /// The longest time, as a multiple of the configured time.
    static constexpr Nanos kMost = 4;

private:
    Nanos least_, now_;
};

}  // namespace roci::pmd
