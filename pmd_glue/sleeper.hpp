// A thread without work sleeps until an eventfd is written or a time limit expires. The sleeper watches descriptors
// edge-triggered and never reads them. A client shares the file description of its eventfd, so the client can read the eventfd or
// clear O_NONBLOCK. Because rocid never reads the eventfd, such a client cannot block rocid.
#pragma once

#include <atomic>

#include "base/types.hpp"

namespace roci::pmd {

/// A source of work, such as a NIC's interrupts, that wakes a sleeper by a descriptor and must be enabled before each sleep.
class Waker {
public:
    enum class Slept : uint8_t { not_at_all, until_woken, until_time_was_up };
    virtual ~Waker() = default;
    virtual void before_sleep() = 0;
    virtual void after_sleep(Slept how) = 0;
    /// Returns false until the source has woken the sleeper for the first time. Returns false again if the source repeatedly did
    /// not wake the sleeper although there was work.
    virtual bool wakes() const = 0;
};

/// Wakes all threads of all processes that wait on a futex in shared memory. Returns false if no thread waited.
bool wake_futex(const uint32_t* word);

class Sleeper {
public:
    /// Throws std::system_error if the kernel provides no descriptors.
    Sleeper();
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;

    /// Wakes the sleeper. May be called by any thread.
    void wake();
    /// Watches a descriptor until forget(). May be called by any thread. Returns false and sets errno on failure. If `heard` is
    /// not nullptr, sleep() sets `heard` when the descriptor has woken the sleeper.
    bool watch(int fd, std::atomic<bool>* heard = nullptr);
    void forget(int fd);
    /// Sleeps until wake() is called, a watched descriptor becomes readable, or `time` has passed. Returns false if `time` has
    /// passed.
    bool sleep(Nanos time);

private:
    int epoll_ = -1, own_ = -1;
};

}  // namespace roci::pmd
