// Decides what a thread does after it has polled an empty CQ (abi/cpu_pace.hpp). While no other thread is runnable on the CPU,
// the thread polls again. Otherwise it yields the CPU. If a busy program uses the same CPU, the thread sleeps briefly.
#pragma once

#include "abi/cpu_pace.hpp"
#include "objects.hpp"

namespace roci::client {

/// The polling state of a thread. The state is per thread and not per CQ, because it depends on the CPU on which the thread runs.
struct Poller {
    /// The largest number of empty polls before a yield. The polls take about 10 microseconds.
    static constexpr uint32_t kMostPolls = 1024;
    abi::CpuPace pace{kMostPolls};
    const Cq* last = nullptr;  ///< the CQ of this thread's last empty poll with Way::sleep
    uint64_t polled = 0;
    uint32_t woken = 0;  ///< number of sleeps that a completion ended since the last sleep that timed out
};
extern constinit thread_local Poller poller [[gnu::tls_model("initial-exec")]];

void give_up_cpu(Cq& cq, abi::CpuPace::Way way);

/// Called after an empty poll, without the CQ's lock. Yields the CPU or sleeps if another thread, for example the engine's lcore,
/// may need the CPU.
inline void polled_in_vain(Cq& cq) {
    const abi::CpuPace::Way way = poller.pace.in_vain();
    if (way != abi::CpuPace::Way::look_again) [[unlikely]]
        give_up_cpu(cq, way);
}
/// Called after a poll that found an entry.
inline void polled() { poller.pace.found(); }

}  // namespace roci::client
