// Sets short time slices. A thread that often waits for another thread then gets a shared CPU sooner.
//
// Since version 6.12 Linux accepts a time slice per thread (sched_setattr(2), sched_runtime of SCHED_OTHER). The slice has two
// effects:
//
//  - The kernel preempts a running thread for a woken thread whose slice is shorter.
//  - Each sched_yield(2) delays the next turn of a thread by the length of the thread's own slice. With the default slice (1.4 ms
//    on 2 CPUs), after a few yields a busy program runs for milliseconds before the thread runs again.
//
// The thread's share of the CPU time stays the same. The call needs no privilege. Older kernels ignore the slice.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace roci::abi {

/// The shortest slice that Linux accepts, in nanoseconds.
inline constexpr uint64_t kShortSlice = 100'000;

/// Shortens the slice of the calling thread to kShortSlice. Threads and processes that this thread starts later inherit the
/// slice. If the slice is already shorter or the scheduling policy is not SCHED_OTHER, changes nothing. Returns true if the
/// policy is SCHED_OTHER and the slice is now at most kShortSlice.
inline bool shorten_time_slice() {
    struct {  // the first version of struct sched_attr, which only new C libraries declare (in <sched.h>)
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

/// Shortens the slice of the calling thread, at the thread's first call only. A thread that may share its CPU with other threads
/// calls this function before it waits for rocid.
inline void ask_for_short_slices() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local bool asked = false;
    if (asked) return;
    asked = true;
    shorten_time_slice();
}

}  // namespace roci::abi
