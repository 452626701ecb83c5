#include "poller.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "abi/time_slice.hpp"

namespace roci::client {
namespace {

using Way = abi::CpuPace::Way;

/// The longest sleep of a thread that may also wait for something other than a completion: 200 microseconds. A polling program
/// that shares its CPU with a busy program sometimes waits a whole time slice for the CPU, which is longer than this sleep.
constexpr timespec kShort{0, 200'000};
/// The longest sleep of a thread that completions have woken at least kTrusted times since its last timeout. This time is longer
/// than a period of the scheduler's clock, so that the kernel need not program the CPU's timer. In a virtual machine, programming
/// this timer takes longer than the wake-up itself.
constexpr timespec kLong{0, 12'000'000};
constexpr uint32_t kTrusted = 16;
/// If the time since the last poll is at most kAtOnce times the duration of a system call, the thread has done no other work
/// between the two polls.
constexpr uint64_t kAtOnce = 16;

/// Returns true if the thread only polls this CQ. Stores the time and the CQ of this poll for the next call. A thread that does
/// other work or polls other CQs between two polls must not sleep.
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
    if (word != nullptr) {
        const timespec& longest = poller.woken >= kTrusted ? kLong : kShort;
        if (syscall(SYS_futex, word, FUTEX_WAIT, 1, &longest, nullptr, 0) == 0)
            ++poller.woken;
        else if (errno == ETIMEDOUT)
            poller.woken = 0;
    }
    poller.polled = abi::monotonic_ns();
}

}  // namespace

constinit thread_local Poller poller;

void give_up_cpu(Cq& cq, Way way) {
    if (way == Way::sleep) {
        if (only_polls(cq)) sleep_on(cq);
        return;
    }
    abi::yield_cpu(poller.pace);
    if (poller.pace.shares()) abi::ask_for_short_slices();
}

}  // namespace roci::client
