// Chooses for how long an idle lcore polls before it sleeps. A wake-up from sleep takes tens of microseconds. If two programs
// exchange messages, each message would wait for such a wake-up at both engines. So after a short sleep, the lcore polls for
// longer. After a long sleep, it polls for the configured time again.
#pragma once

#include <algorithm>

#include "base/types.hpp"

namespace roci::pmd {

class SpinTime {
public:
    /// `least` is the configured time. `syscall_ns` is the duration of a system call without effect, in nanoseconds. On a slow
    /// processor, for example an emulated one, the work between two messages takes longer, so the longest time is longer, too.
    explicit SpinTime(Nanos least, Nanos syscall_ns = 0)
        : least_(least), most_(kMost * least * std::max(syscall_ns, kUsualSyscall) / kUsualSyscall), now_(least) {}
    Nanos get() const { return now_; }
    bool is_longest() const { return now_ == most_; }
    /// Chooses the polling time that follows a sleep of `slept`. A sleep shorter than the longest polling time doubles the
    /// polling time, because the lcore would have done better to poll. Any other sleep restores the configured time.
    void slept(Nanos slept) { now_ = slept < most_ ? std::min(2 * now_, most_) : least_; }

    /// The longest time, as a multiple of the configured time, on a processor whose system calls take at most kUsualSyscall.
    static constexpr Nanos kMost = 4;
    static constexpr Nanos kUsualSyscall = 200;  ///< ns

private:
    Nanos least_, most_, now_;
};

}  // namespace roci::pmd
