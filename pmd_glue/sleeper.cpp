#include "sleeper.hpp"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

namespace roci::pmd {
namespace {

constexpr Nanos kSecond = 1'000'000'000, kMilli = 1'000'000;
constexpr int kEvents = 16;

/// Waits with nanosecond resolution if the kernel (5.11 or newer) and the seccomp filter permit epoll_pwait2(2). Otherwise rounds
/// the time down to milliseconds, because an early return costs only one poll, but a late return would miss a deadline.
int wait(int epoll, epoll_event* events, Nanos time) {
    static thread_local bool fine = true;
    if (fine) {
        const timespec t{time_t(time / kSecond), long(time % kSecond)};
        const int n = epoll_pwait2(epoll, events, kEvents, &t, nullptr);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n;
        fine = false;
    }
    return epoll_wait(epoll, events, kEvents, int(time / kMilli));
}

}  // namespace

bool wake_futex(const uint32_t* word) {
    return syscall(SYS_futex, word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0) > 0;
}

Sleeper::Sleeper() : epoll_(epoll_create1(EPOLL_CLOEXEC)), own_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (epoll_ < 0 || own_ < 0 || !watch(own_))
        throw std::system_error(errno, std::generic_category(), "no descriptor for a sleeping lcore");
}

Sleeper::~Sleeper() {
    close(own_);
    close(epoll_);
}

void Sleeper::wake() {
    const uint64_t one = 1;
    // The write can fail only if the counter of the eventfd overflows, which takes 2^64 writes.
    [[maybe_unused]] const ssize_t n = write(own_, &one, sizeof one);
}

bool Sleeper::watch(int fd, std::atomic<bool>* heard) {
    epoll_event e{.events = EPOLLIN | EPOLLET, .data = {.ptr = heard}};
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) == 0;
}

void Sleeper::forget(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

bool Sleeper::sleep(Nanos time) {
    epoll_event events[kEvents];
    const int n = wait(epoll_, events, std::min(time, 3600 * kSecond));
    for (int i = 0; i < n; ++i)
        if (events[i].data.ptr != nullptr)
            static_cast<std::atomic<bool>*>(events[i].data.ptr)->store(true, std::memory_order_relaxed);
    return n > 0;
}

}  // namespace roci::pmd
