// A client can remove pages of registered memory (punch a hole). When rocid accesses a removed page, the kernel allocates a page
// and charges the page to rocid, not to the client. This class limits the memory for such pages. If rocid's control group has a
// memory limit, userfaultfd converts the access into SIGBUS, and the handler of SIGBUS calls fill(). fill() allocates the page
// only if the credit and the pool permit it. Otherwise the handler poisons the region, as after a truncation. This class stores
// three amounts in bytes. The pool is the memory that rocid may still allocate for all users together. The credit is the memory
// that rocid may still allocate for one user until the next renew(). The debt is the memory that rocid has allocated for one
// user and that the growth of the pool has not yet paid back. One second after a call of fill(), or after lower_pool() has
// lowered the pool, timer_fd() becomes readable. The owner then calls renew(), which sets the pool and the credits again.
//
// A credit is at most half of (pool - debt). So a user's allocations never make the debt of the user larger than the rest of the
// pool, if nobody else takes memory from the pool (dynamic thresholds: Choudhury and Hahne, 1998). renew() compares the new pool
// with the rest of the old pool. The rest is the pool of the last renew() minus the pages that were filled since then. If the new
// pool is larger than the rest, the difference pays in this order: pages that were filled since the last renew(), then bytes that
// the pool lost to other causes, then older debts. The newest pages are paid first, because a program that repeatedly punches
// holes frees its newest pages. In another order, a user could keep pages while memory that other users free pays the debt of
// this user.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace roci::rocid {

class HoleFiller {
public:
    /// The credit and debt of one user, in bytes.
    struct Credit {
        std::atomic<int64_t> left{0};  ///< bytes that may still be filled until the next renewal
        int64_t given = 0;             ///< `left` after the last renewal
        int64_t counted = 0;           ///< value of filled() that the current renew() uses; filled() may grow meanwhile
        int64_t debt = 0;              ///< bytes that were filled before the last renewal and are not paid back
        size_t mappings = 0;
        int64_t filled() const { return given - left.load(std::memory_order_relaxed); }
    };

    HoleFiller();
    ~HoleFiller();
    HoleFiller(const HoleFiller&) = delete;

    /// Opens a userfaultfd. Returns false and sets errno if the kernel does not support or permit it (before Linux 5.11, or
    /// because of a seccomp filter).
    bool open();
    /// Requests SIGBUS for accesses to missing pages of this mapping of shared memory. Returns false if open() has failed, or if
    /// the kernel refuses, for example because the mapping can never be written.
    bool watch(void* base, uint64_t length) const;
    bool is_open() const { return fd_ >= 0; }
    /// Returns the credit of a user, for one mapping. The caller must call release() after the end of the mapping. A new user
    /// gets the share of the last renew(), but at most half of the pool.
    Credit* credit_of(uint32_t uid);
    /// Ends the use of a credit by one mapping. Does nothing if `credit` is nullptr.
    void release(Credit* credit);
    /// Sets the pool to `pool` bytes. Updates the debts. Sets the credit of each user to `share` bytes, but at most to half of
    /// the difference between the pool and the user's debt. Removes users that have neither mappings nor debts.
    void renew(uint64_t pool, uint64_t share);
    static constexpr int64_t kUnlimited = INT64_MAX;  ///< a pool or share without a limit
    /// Returns the number of users that have a mapping or a debt.
    size_t users() const { return credits_.size(); }
    /// Lowers the pool to at most `bytes`.
    void lower_pool(uint64_t bytes);
    /// Allocates the page at `address`. Called by the handler of SIGBUS. Returns false if watch() was not called for the page, if
    /// the page is beyond the end of the file, or if the credit or the pool is used up.
    bool fill(uintptr_t address, Credit* credit);
    /// Returns a descriptor that becomes readable one second after a call of fill(), or after lower_pool() has lowered the pool.
    /// The owner should then call renew(), which makes the descriptor unreadable again.
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
    std::unordered_map<uint32_t, Credit> credits_;  ///< by user; the handler of SIGBUS uses entries with mappings
    std::atomic<uint64_t> filled_{0};
};

}  // namespace roci::rocid
