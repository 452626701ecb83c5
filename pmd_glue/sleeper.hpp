// A thread without work sleeps until an eventfd is written or a time limit expires. Descriptors are watched edge-triggered and
// never read. A client shares the file description of its eventfd, so the client may drain the eventfd or clear O_NONBLOCK.
// Because rocid never reads the eventfd, such a client cannot block rocid.
#pragma once

#include <atomic>

#include "base/types.hpp"

namespace roci::pmd {

/// A source that wakes a sleeper by a descriptor and must be armed before each sleep, such as a NIC's interrupts.
class Waker {
public:
    enum class Slept : uint8_t { not_at_all, until_woken, until_time_was_up };
    virtual ~Waker() = default;
    virtual void before_sleep() = 0;
    virtual void after_sleep(Slept how) = 0;
    /// Returns false until the source has woken a sleeper, and again once the source has failed to wake a sleeper although there
    /// was work.
    virtual bool wakes() const = 0;
};

/// Wakes all threads of all processes that wait on a futex in shared memory. Returns false if there was none.
bool wake_futex(const uint32_t* word);

class Sleeper {
public:
    /// Throws std::system_error if the kernel provides no descriptors.
    Sleeper();
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;

    /// Wakes the sleeper. May be called by any thread.
    void wake();
    /// Starts to watch an eventfd until forget(). May be called by any thread. Returns false and sets errno on failure. `heard`
    /// is set when the eventfd has woken the sleeper.
    bool watch(int fd, std::atomic<bool>* heard = nullptr);
    void forget(int fd);
    /// Sleeps until wake(), a write to a watched eventfd, or the end of `time`. Returns true if woken.
    bool sleep(Nanos time);

private:
    int epoll_ = -1, own_ = -1;
};

}  // namespace roci::pmd
