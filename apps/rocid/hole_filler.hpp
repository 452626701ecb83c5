// Allocates pages that clients have removed from registered memory. The kernel charges such a page to the process that touches it
// first: rocid. If rocid's control group has a limit, userfaultfd turns an access to a missing page into SIGBUS. The handler of
// SIGBUS allocates pages up to a credit of the user, and up to a pool of all users together. Beyond this the handler poisons the
// region, as after a truncation. A timer asks for the renewal of pool and credits; it starts when a page is to be filled or the
// pool is lowered. A program that removes pages for as long as it runs therefore keeps its regions, if the removed memory really
// becomes free.
//
// Filled pages are the debt of their user until the pool has grown by as much. The debt of a user never exceeds what it leaves in
// the pool, so each user leaves half of the pool to the others (dynamic thresholds: Choudhury and Hahne, 1998). The kernel does
// not tell whose memory became free. So growth of the pool settles the pages filled since the last renewal first, because
// programs that remove pages again and again free the newest ones. It then makes up for what the pool lost without filled pages,
// and settles older debts last. Otherwise a user could keep its pages and have its debt settled by the memory of others.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace roci::rocid {

class HoleFiller {
public:
    /// The account of one user, in bytes.
    struct Credit {
        std::atomic<int64_t> left{0};  ///< may still be filled until the next renewal
        int64_t given = 0;             ///< `left` after the last renewal
        int64_t counted = 0;           ///< filled() in the present renewal
        int64_t debt = 0;              ///< filled before the last renewal and not settled
        size_t mappings = 0;
        int64_t filled() const { return given - left.load(std::memory_order_relaxed); }
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
    /// Returns the credit of a user, for one mapping. release() must follow when the mapping is gone. A new user gets the share
    /// of the last renew(), but no more than half of the pool.
    Credit* credit_of(uint32_t uid);
    /// Ends the use of a credit by one mapping. Does nothing for nullptr.
    void release(Credit* credit);
    /// Sets the pool of all users together, and the share of each user, in bytes. The credit of a user is the share, but no more
    /// than keeps the user's debt below the pool. Forgets users without mappings and debts.
    void renew(uint64_t pool, uint64_t share);
    static constexpr int64_t kUnlimited = INT64_MAX;  ///< a pool or share without a limit
    /// Returns the number of users that have a mapping or a debt.
    size_t users() const { return credits_.size(); }
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
    int64_t credit(int64_t debt) const;
    void settle(int64_t pool);
    void forgive();
    void forget_idle();
    int fd_ = -1, timer_ = -1;
    std::atomic<bool> timer_runs_{false};
    std::atomic<int64_t> pool_{0};
    int64_t share_ = 0;
    int64_t renewed_pool_ = 0;                      ///< the pool of the last renew()
    int64_t lost_ = 0;                              ///< bytes that the pool lost without filled pages
    std::unordered_map<uint32_t, Credit> credits_;  ///< by user; an entry stays while the handler of SIGBUS may use it
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
