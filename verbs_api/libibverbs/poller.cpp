// What a thread does that polls a CQ in vain: it spins while its CPU is free, yields it where it is shared, and sleeps for a
// moment where a busy program wants it (abi/cpu_pace.hpp).
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "abi/cpu_pace.hpp"
#include "context.hpp"

namespace roci::client {
namespace {

using Way = abi::CpuPace::Way;

/// Empty polls before a yield, on a CPU that nobody else wants: about 10 microseconds.
constexpr uint32_t kMostPolls = 1024;
/// The longest sleep. A program that polls in vain beside a busy one waits a time slice now and then anyway.
constexpr timespec kLongest{0, 200'000};
/// A program that does nothing but poll comes back within so many of the shortest system calls.
constexpr uint64_t kAtOnce = 16;

/// Of the thread, not of the CQ: what is learnt is about the thread's CPU.
struct Poller {
    abi::CpuPace pace{kMostPolls};
    const Cq* last = nullptr;  ///< that it polled in vain, in Way::sleep
    uint64_t polled = 0;
};
constinit thread_local Poller poller [[gnu::tls_model("initial-exec")]];

/// The thread does nothing but poll this one CQ. One that has other work, or other CQs, between two polls must not sleep.
bool only_polls(const Cq& cq) {
    const uint64_t now = abi::monotonic_ns();
    const bool at_once = now - poller.polled <= kAtOnce * abi::syscall_ns();
    poller.polled = now;
    return std::exchange(poller.last, &cq) == &cq && at_once;
}

void sleep_on(Cq& cq) {
    const uint32_t* word;
    {
        const std::lock_guard guard(cq.lock);
        word = cq.ring.prepare_sleep();
    }
    if (word != nullptr) syscall(SYS_futex, word, FUTEX_WAIT, 1, &kLongest, nullptr, 0);
    poller.polled = abi::monotonic_ns();
}

}  // namespace

void polled_in_vain(Cq& cq) {
    const Way way = poller.pace.in_vain();
    if (way == Way::look_again) return;
    if (way == Way::yield) return abi::yield_cpu(poller.pace);
    if (only_polls(cq)) sleep_on(cq);
}

void polled() { poller.pace.found(); }

}  // namespace roci::client
