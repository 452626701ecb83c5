#pragma once
/// Helpers for system calls.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace roci::memory {

inline uint64_t page_size() {
    static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}
/// The size of a huge page: the bytes that one entry of the page middle directory (PMD) maps.
inline constexpr uint64_t kHugePage = 2ull << 20;
inline uint64_t page_floor(uint64_t address) { return address & ~(page_size() - 1); }
inline uint64_t page_ceil(uint64_t address) { return page_floor(address + page_size() - 1); }

template <typename T = void>
T* pointer(uint64_t address) {
    return reinterpret_cast<T*>(address);
}

/// Owns a descriptor. The destructor closes the descriptor.
class Fd {
public:
    explicit Fd(int fd = -1) : fd_(fd) {}
    ~Fd() { reset(); }
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        reset(std::exchange(other.fd_, -1));
        return *this;
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset(int fd = -1) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }
    /// Returns the descriptor without closing it. The object is then empty.
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_;
};

/// Returns all signals except SIGSEGV. A thread that waits for room_mutex must not block SIGSEGV. The mprotect freezer freezes
/// nothing while a thread blocks SIGSEGV, because the kernel would kill the process if this thread wrote to a frozen page.
inline sigset_t all_but_sigsegv() {
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, SIGSEGV);
    return set;
}

/// Blocks cancellation and all signals except SIGSEGV in the calling thread during the lifetime of the object. The thread that
/// calls freeze() and thaw() (freeze.hpp) needs this object. If a signal handler of this thread wrote to a frozen page, the
/// handler would wait for ever, because the same thread must call thaw().
class Undisturbed {
public:
    Undisturbed() {
        const sigset_t signals = all_but_sigsegv();
        pthread_sigmask(SIG_SETMASK, &signals, &old_mask_);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old_cancel_);
    }
    ~Undisturbed() {
        pthread_setcancelstate(old_cancel_, nullptr);
        pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    }
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;

private:
    sigset_t old_mask_;
    int old_cancel_ = 0;
};

}  // namespace roci::memory
