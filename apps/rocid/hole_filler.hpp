// A client can punch a hole into registered memory. When rocid touches the hole, the kernel allocates a page and charges it to
// rocid, not to the client. This class limits the memory that such pages take. If rocid's control group has a limit, userfaultfd
// turns the access into SIGBUS, and the handler of SIGBUS calls fill(). Three amounts, in bytes, decide whether fill() allocates
// the page. Pool: what all users together may still make rocid allocate. Credit: what one user may still make rocid allocate
// until the next renew(). Debt: what a user made rocid allocate and the growth of the pool has not yet paid back. If the credit
// or the pool is used up, the handler poisons the region, as after a truncation. One second after fill() was called or
// lower_pool() lowered the pool, a timer asks for renew(), which sets the pool and the credits anew.
//
// A credit is at most half of (pool - debt). So the debt of a user never exceeds what the user leaves in the pool (dynamic
// thresholds: Choudhury and Hahne, 1998). If the pool has grown since the last renew(), the growth pays in this order: pages
// filled since the last renew(), then bytes that the pool lost to other causes, then older debts. The newest pages come first,
// because a program that punches holes again and again frees its newest pages. In another order, a user could keep its pages
// while memory that other users free pays its debt.
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
        int64_t counted = 0;           ///< value of filled() that the current renew() uses; filled() may grow meanwhile
        int64_t debt = 0;              ///< filled before the last renewal and not paid back
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
    /// Sets the pool of all users together, in bytes. Sets the credit of each user to `share`, but at most to half of the
    /// difference between the pool and the user's debt. Forgets users that have neither mappings nor debts.
    void renew(uint64_t pool, uint64_t share);
    static constexpr int64_t kUnlimited = INT64_MAX;  ///< a pool or share without a limit
    /// Returns the number of users that have a mapping or a debt.
    size_t users() const { return credits_.size(); }
    /// Lowers the pool to at most `bytes`.
    void lower_pool(uint64_t bytes);
    /// Allocates the page at `address`; the handler of SIGBUS calls this function. Returns false if the page is not watched or is
    /// beyond the end of the file, or if the credit or the pool is used up.
    bool fill(uintptr_t address, Credit* credit);
    /// Returns a descriptor that becomes readable a second after a page was to be filled or the pool was lowered. The caller
    /// should then call renew(), which makes the descriptor unreadable again.
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
    int64_t lost_ = 0;                              ///< bytes that the pool lost to causes other than filled pages
    std::unordered_map<uint32_t, Credit> credits_;  ///< by user; an entry stays while the handler of SIGBUS may use it
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
