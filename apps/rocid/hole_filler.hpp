// Allocates pages that clients have removed from registered memory. The kernel charges such a page to the process that touches it
// first: rocid. If rocid's control group has a limit, userfaultfd turns an access to a missing page into SIGBUS. The handler of
// SIGBUS allocates pages up to a credit of the user, and up to a pool of all users together. Beyond this the handler poisons the
// region, as after a truncation. A timer asks for the renewal of pool and credits; it starts when a page is to be filled or the
// pool is lowered. A program that removes pages for as long as it runs therefore keeps its regions, if the removed memory really
// becomes free.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace roci::rocid {

class HoleFiller {
public:
    /// The bytes that rocid may still allocate for one user.
    struct Credit {
        std::atomic<int64_t> left{0};
    };

    HoleFiller();
    ~HoleFiller();
    HoleFiller(const HoleFiller&) = delete;

    /// Returns false, with errno set, if the kernel does not permit userfaultfd (before Linux 5.11, or by a seccomp filter).
    bool open();
    /// Makes missing pages of this mapping of shared memory raise SIGBUS. Returns false if the kernel refuses because the mapping
    /// can never be written, or if open() has failed.
    bool watch(void* base, uint64_t length) const;
    bool is_open() const { return fd_ >= 0; }
    /// Returns the credit of a user. It is valid as long as the filler exists. A new user gets the share of the last renew().
    Credit* credit_of(uint32_t uid);
    /// Sets the pool of all users together, and the credit of each user, in bytes.
    void renew(uint64_t pool, uint64_t share);
    /// Lowers the pool to at most `bytes`.
    void lower_pool(uint64_t bytes);
    /// Allocates the page at `address`; the handler of SIGBUS calls this function. Returns false if the page is not watched or is
    /// beyond the end of the file, or if the credit or the pool is used up.
    bool fill(uintptr_t address, Credit* credit);
    /// Returns a descriptor that becomes readable a second after a page was to be filled or the pool was lowered. renew() should
    /// follow, and makes the descriptor unreadable again.
    int timer_fd() const { return timer_; }
    uint64_t filled() const { return filled_.load(std::memory_order_relaxed); }

private:
    void start_timer();
    int fd_ = -1, timer_ = -1;
    std::atomic<bool> timer_runs_{false};
    std::atomic<int64_t> pool_{0};
    int64_t share_ = 0;
    std::unordered_map<uint32_t, Credit> credits_;  ///< by user; entries stay, because the handler of SIGBUS may use them
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
