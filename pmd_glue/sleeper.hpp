// How a thread without work sleeps until an eventfd is written or time is up. Descriptors are watched edge-triggered and never
// read, so that nothing a client does to the shared description of its eventfd (draining it, clearing O_NONBLOCK) can block
// rocid.
#pragma once

#include <atomic>

#include "base/types.hpp"

namespace roci::pmd {

/// Wakes a sleeper by a descriptor, but must be armed before each sleep (a NIC's interrupts).
class Waker {
public:
    enum class Slept : uint8_t { not_at_all, until_woken, until_time_was_up };
    virtual ~Waker() = default;
    virtual void before_sleep() = 0;
    virtual void after_sleep(Slept how) = 0;
    /// False as long as it has not shown that it does, and once it has let a sleeper sleep on with work there.
    virtual bool wakes() const = 0;
};

/// Wakes all threads, of any process, that wait on a futex in shared memory. False: there was none.
bool wake_futex(const uint32_t* word);

class Sleeper {
public:
    /// Throws std::system_error if the kernel gives no descriptors.
    Sleeper();
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;

    /// Wakes the sleeper. Any thread.
    void wake();
    /// Starts or stops watching an eventfd. Any thread. False: see errno. `heard` becomes true when the eventfd has woken the
    /// sleeper.
    bool watch(int fd, std::atomic<bool>* heard = nullptr);
    void forget(int fd);
    /// Sleeps until wake(), a write to a watched eventfd, or `time` has passed. True: was woken.
    bool sleep(Nanos time);

private:
    int epoll_ = -1, own_ = -1;
};

}  // namespace roci::pmd
