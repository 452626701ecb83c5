// Decides what a thread does that polls an empty CQ. It spins while no other thread wants its CPU, yields a shared CPU, and
// sleeps briefly if a busy program wants the CPU (abi/cpu_pace.hpp).
#pragma once

#include "abi/cpu_pace.hpp"
#include "objects.hpp"

namespace roci::client {

/// The state is per thread and not per CQ, because it describes the thread's CPU.
struct Poller {
    /// Number of empty polls before a yield on a CPU that no other thread wants: about 10 microseconds.
    static constexpr uint32_t kMostPolls = 1024;
    abi::CpuPace pace{kMostPolls};
    const Cq* last = nullptr;  ///< the last CQ that this thread polled in vain in Way::sleep
    uint64_t polled = 0;
    uint32_t woken = 0;  ///< sleeps that a completion ended, since the last one that lasted too long
};
extern constinit thread_local Poller poller [[gnu::tls_model("initial-exec")]];

void give_up_cpu(Cq& cq, abi::CpuPace::Way way);

/// Called without the lock after an empty poll. Gives up the CPU if the engine or its peer may need it.
inline void polled_in_vain(Cq& cq) {
    const abi::CpuPace::Way way = poller.pace.in_vain();
    if (way != abi::CpuPace::Way::look_again) [[unlikely]]
        give_up_cpu(cq, way);
}
/// Called after a poll that found an entry.
inline void polled() { poller.pace.found(); }

}  // namespace roci::client
