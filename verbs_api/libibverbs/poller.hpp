// What a thread does that polls a CQ in vain: it spins while its CPU is free, yields it where it is shared, and sleeps for a
// moment where a busy program wants it (abi/cpu_pace.hpp).
#pragma once

#include "abi/cpu_pace.hpp"
#include "objects.hpp"

namespace roci::client {

/// Of the thread, not of the CQ: what is learnt is about the thread's CPU.
struct Poller {
    /// Empty polls before a yield, on a CPU that nobody else wants: about 10 microseconds.
    static constexpr uint32_t kMostPolls = 1024;
    abi::CpuPace pace{kMostPolls};
    const Cq* last = nullptr;  ///< that it polled in vain, in Way::sleep
    uint64_t polled = 0;
};
extern constinit thread_local Poller poller [[gnu::tls_model("initial-exec")]];

void give_up_cpu(Cq& cq, abi::CpuPace::Way way);

/// Called without the lock after a poll that found nothing: a program that polls an empty CQ may hold the CPU that the engine, or
/// its peer, needs.
inline void polled_in_vain(Cq& cq) {
    const abi::CpuPace::Way way = poller.pace.in_vain();
    if (way != abi::CpuPace::Way::look_again) [[unlikely]]
        give_up_cpu(cq, way);
}
/// After a poll that found something.
inline void polled() { poller.pace.found(); }

}  // namespace roci::client
