// Asks the scheduler for short time slices. A thread that often waits for another one then gets a shared CPU sooner.
//
// Since version 6.12 Linux accepts a time slice per thread (sched_setattr(2), sched_runtime of SCHED_OTHER). The slice has two
// effects:
//
//  - The kernel preempts a running thread for a woken thread whose slice is shorter.
//  - A thread that yields falls behind by one slice of its own. With the default slice (1.4 ms on 2 CPUs), a few yields put the
//    thread behind a busy program, which then runs for milliseconds.
//
// The share of the CPU time stays the same. The call needs no privilege. Older kernels ignore the slice.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace roci::abi {

/// The shortest slice that Linux accepts, in nanoseconds.
inline constexpr uint64_t kShortSlice = 100'000;

/// Shortens the slice of the calling thread. Threads and processes that this thread starts later inherit the slice. Leaves a
/// shorter slice, and threads with another policy than SCHED_OTHER, as they are. Returns true if the thread now has a slice of at
/// most kShortSlice.
inline bool shorten_time_slice() {
    struct {  // struct sched_attr, first version. Old C libraries do not declare it, new ones do so in <sched.h>.
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a{};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER) return false;
    if (a.runtime != 0 && a.runtime <= kShortSlice) return true;
    a.size = sizeof a;
    a.runtime = kShortSlice;
    if (syscall(SYS_sched_setattr, 0, &a, 0) != 0) return false;
    return syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0 && a.runtime == kShortSlice;
}

/// Shortens the slice at the first call of a thread. Called before a thread waits for rocid on a CPU that other threads want.
inline void ask_for_short_slices() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local bool asked = false;
    if (asked) return;
    asked = true;
    shorten_time_slice();
}

}  // namespace roci::abi
