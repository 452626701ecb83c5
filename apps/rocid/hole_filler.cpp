#include "hole_filler.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace roci::rocid {
namespace {

constexpr int64_t kPageBytes = 4096;

/// Subtracts one page from `left`. Returns false if `left` is less than a page.
bool take_page(std::atomic<int64_t>& left) {
    int64_t now = left.load(std::memory_order_relaxed);
    while (now >= kPageBytes)
        if (left.compare_exchange_weak(now, now - kPageBytes, std::memory_order_relaxed)) return true;
    return false;
}

}  // namespace

HoleFiller::HoleFiller() : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

HoleFiller::~HoleFiller() {
    if (fd_ >= 0) close(fd_);
    if (timer_ >= 0) close(timer_);
}

bool HoleFiller::open() {
    fd_ = int(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
    if (fd_ < 0) return false;
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS;
    if (ioctl(fd_, UFFDIO_API, &api) == 0) return true;
    const int error = errno;
    close(fd_);
    fd_ = -1;
    errno = error;
    return false;
}

bool HoleFiller::watch(void* base, uint64_t length) const {
    if (fd_ < 0) return false;
    uffdio_register r{};
    r.range = {reinterpret_cast<uintptr_t>(base), length};
    r.mode = UFFDIO_REGISTER_MODE_MISSING;
    return ioctl(fd_, UFFDIO_REGISTER, &r) == 0;
}

/// Returns the credit of a user with this debt: half of the difference between pool and debt, but at most the share. The factor
/// is one half because each filled page reduces the pool and adds to the debt.
int64_t HoleFiller::credit(int64_t debt) const { return std::clamp<int64_t>((renewed_pool_ - debt) / 2, 0, share_); }

HoleFiller::Credit* HoleFiller::credit_of(uint32_t uid) {
    const auto [it, fresh] = credits_.try_emplace(uid);
    Credit& c = it->second;
    ++c.mappings;
    if (fresh) c.left.store(c.given = credit(0), std::memory_order_relaxed);
    return &c;
}

void HoleFiller::release(Credit* credit) {
    if (credit != nullptr && --credit->mappings == 0) forget_idle();
}

/// Removes users that have neither mappings nor debts. Keeps users that have filled pages since the last renewal, because a user
/// who returns must not get a new credit. The next renew() calls this function again.
void HoleFiller::forget_idle() {
    std::erase_if(credits_, [](const auto& entry) {
        const Credit& c = entry.second;
        return c.mappings == 0 && c.debt == 0 && c.filled() == 0;
    });
}

/// Adds the pages that were filled since the last renewal to the debts, and reduces the debts by the growth of the pool.
void HoleFiller::settle(int64_t pool) {
    int64_t filled = 0, debts = 0;
    for (auto& [uid, c] : credits_) filled += c.counted = c.filled(), debts += c.debt;
    int64_t grown = pool - (renewed_pool_ - filled);
    lost_ -= std::min<int64_t>(grown, 0);
    const auto settled = [&grown](int64_t bytes) {
        const int64_t part = std::clamp<int64_t>(grown, 0, bytes);
        grown -= part;
        return part;
    };
    const int64_t new_settled = settled(filled);
    lost_ -= settled(lost_);
    const int64_t old_settled = settled(debts);
    const auto rest = [](int64_t bytes, int64_t part, int64_t all) {
        return all == 0 ? 0 : bytes - int64_t(double(bytes) * (double(part) / double(all)));
    };
    for (auto& [uid, c] : credits_) c.debt = rest(c.debt, old_settled, debts) + rest(c.counted, new_settled, filled);
}

void HoleFiller::forgive() {
    lost_ = 0;
    for (auto& [uid, c] : credits_) c.debt = 0;
}

void HoleFiller::renew(uint64_t pool, uint64_t share) {
    uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t n = read(timer_, &expirations, sizeof expirations);  // EAGAIN: the timer has not expired
    timer_runs_.store(false);
    settle(int64_t(pool));
    if (pool == kUnlimited || renewed_pool_ == kUnlimited) forgive();
    share_ = int64_t(share);
    renewed_pool_ = int64_t(pool);
    pool_.store(renewed_pool_, std::memory_order_relaxed);
    for (auto& [uid, c] : credits_) {
        const int64_t before = c.given - c.counted;
        c.given = credit(c.debt);
        c.left.fetch_add(c.given - before, std::memory_order_relaxed);  // fill() may subtract pages at the same time
    }
    forget_idle();
}

void HoleFiller::lower_pool(uint64_t bytes) {
    int64_t now = pool_.load(std::memory_order_relaxed);
    bool lowers = false;
    while (!lowers && now > int64_t(bytes)) lowers = pool_.compare_exchange_weak(now, int64_t(bytes), std::memory_order_relaxed);
    if (lowers) start_timer();  // so that the pool grows again when memory is free
}

/// Starts the timer if the timer does not run. The handler of SIGBUS calls this function, so it must be async-signal-safe.
void HoleFiller::start_timer() {
    constexpr itimerspec kOnce{.it_interval = {0, 0}, .it_value = {1, 0}};
    if (!timer_runs_.exchange(true)) timerfd_settime(timer_, 0, &kOnce, nullptr);
}

bool HoleFiller::fill(uintptr_t address, Credit* credit) {
    if (fd_ < 0 || credit == nullptr) return false;
    start_timer();
    if (!take_page(credit->left)) return false;
    if (!take_page(pool_)) {
        credit->left.fetch_add(kPageBytes, std::memory_order_relaxed);
        return false;
    }
    uffdio_zeropage z{};
    z.range = {address / kPageBytes * kPageBytes, kPageBytes};
    // EEXIST: another thread has allocated the page.
    if (ioctl(fd_, UFFDIO_ZEROPAGE, &z) != 0 && errno != EEXIST) return false;
    filled_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

}  // namespace roci::rocid
