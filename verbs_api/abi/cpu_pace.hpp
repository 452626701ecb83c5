// Decides what a polling thread does when a poll finds nothing: poll again, yield the CPU, or sleep. This header is used by idle
// engines, by programs that poll an empty CQ, and by clients that wait for a reply of rocid.
//
// Polling in a loop is useful only while no other thread is runnable on the same CPU. The duration of sched_yield() shows which
// case applies:
//
//  - sched_yield() returns at once: no other thread is runnable on this CPU. The polling thread doubles the number of polls
//    before its next yield, up to a limit.
//  - sched_yield() returns after microseconds: another thread ran and gave the CPU back. Usually the polling thread waits for the
//    work of that thread. From now on the polling thread yields after each empty poll.
//  - sched_yield() returns after a scheduler's time slice: a busy program took the CPU and kept it. Each further yield would cost
//    a time slice, but a sleeping thread gets the CPU back as soon as it is woken. So the polling thread sleeps after each of its
//    next empty polls, for a limited number of sleeps. Then it yields once to check whether the busy program still runs.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace roci::abi {

class CpuPace {
public:
    enum class Way : uint8_t { look_again, yield, sleep };

    /// `most_looks` is the largest number of empty polls before a yield.
    explicit constexpr CpuPace(uint32_t most_looks) : most_looks_(most_looks) {}

    void found() { looks_ = 0; }
    Way in_vain() {
        if (looks_++ < patience_) return Way::look_again;
        looks_ = 0;
        if (sleeps_left_ == 0) return Way::yield;
        --sleeps_left_;
        return Way::sleep;
    }
    /// Chooses the next steps after a yield that took `ns` nanoseconds. `syscall_ns` is the duration of a system call without
    /// effect, in nanoseconds.
    void yielded(uint64_t ns, uint64_t syscall_ns) {
        if (ns <= kLone * syscall_ns) {
            patience_ = std::min(2 * patience_ + 1, most_looks_);
            next_sleeps_ = kFewestSleeps;
            return;
        }
        patience_ = 0;
        if (ns < std::clamp(kSliceCalls * syscall_ns, kTimeSlice, kLongestSlice)) {
            next_sleeps_ = kFewestSleeps;
            return;
        }
        sleeps_left_ = next_sleeps_;
        next_sleeps_ = std::min(4 * next_sleeps_, kMostSleeps);
    }
    /// Returns true if another thread ran during the last yield. Also returns true before the first yield.
    bool shares() const { return patience_ == 0; }

    /// If a yield takes at most kLone times as long as a system call without effect, no other thread ran. A yield without a
    /// switch to another thread takes about 3 times as long. A switch to another thread and back takes at least 12 times as long.
    static constexpr uint64_t kLone = 6;
    /// A yield of at least this many nanoseconds means that a busy program used up a scheduler's time slice. A round of an engine
    /// is shorter. The work of a program between two polls is shorter too.
    static constexpr uint64_t kTimeSlice = 400'000;
    /// On a slow processor, for example an emulated one, a round takes longer. So a time slice also takes at least as long as
    /// this number of system calls without effect.
    static constexpr uint64_t kSliceCalls = 4'000;
    /// Where system calls are slow but the processor is not, time slices have the usual length of 2 to 4 ms.
    static constexpr uint64_t kLongestSlice = 2'000'000;
    static constexpr uint32_t kFewestSleeps = 64, kMostSleeps = 16384;

private:
    uint32_t most_looks_;
    uint32_t looks_ = 0;     ///< empty polls since the last successful poll, yield or sleep
    uint32_t patience_ = 0;  ///< number of empty polls before the next yield
    uint32_t sleeps_left_ = 0;
    uint32_t next_sleeps_ = kFewestSleeps;
};

inline uint64_t monotonic_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

/// Returns the duration of a system call without effect, in nanoseconds. The first call measures the duration.
inline uint64_t syscall_ns() {
    static const uint64_t ns = [] {
        constexpr uint64_t kTries = 8, kCalls = 4;
        uint64_t least = ~uint64_t{0};
        for (uint64_t i = 0; i < kTries; ++i) {
            const uint64_t start = monotonic_ns();
            for (uint64_t c = 0; c < kCalls; ++c) syscall(SYS_getppid);
            least = std::min(least, monotonic_ns() - start);
        }
        return std::max<uint64_t>(least / kCalls, 1);
    }();
    return ns;
}

/// Yields the CPU and reports the duration to `pace`.
inline void yield_cpu(CpuPace& pace) {
    const uint64_t before = monotonic_ns();
    sched_yield();
    pace.yielded(monotonic_ns() - before, syscall_ns());
}

}  // namespace roci::abi
