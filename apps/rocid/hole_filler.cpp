#include "hole_filler.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace roci::rocid {
namespace {

constexpr int64_t kPage = 4096;

/// Returns false if less than a page is left.
bool take_page(std::atomic<int64_t>& left) {
    int64_t now = left.load(std::memory_order_relaxed);
    while (now >= kPage)
        if (left.compare_exchange_weak(now, now - kPage, std::memory_order_relaxed)) return true;
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

HoleFiller::Credit* HoleFiller::credit_of(uint32_t uid) {
    const auto [it, fresh] = credits_.try_emplace(uid);
    if (fresh) it->second.left.store(share_, std::memory_order_relaxed);
    return &it->second;
}

void HoleFiller::renew(uint64_t pool, uint64_t share) {
    uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t n = read(timer_, &expirations, sizeof expirations);  // EAGAIN: the timer has not expired
    timer_runs_.store(false);
    share_ = int64_t(share);
    pool_.store(int64_t(pool), std::memory_order_relaxed);
    for (auto& [uid, credit] : credits_) credit.left.store(share_, std::memory_order_relaxed);
}

void HoleFiller::lower_pool(uint64_t bytes) {
    int64_t now = pool_.load(std::memory_order_relaxed);
    bool lowers = false;
    while (!lowers && now > int64_t(bytes)) lowers = pool_.compare_exchange_weak(now, int64_t(bytes), std::memory_order_relaxed);
    if (lowers) start_timer();  // so that the pool grows again when memory is free
}

/// Starts the timer if it does not run. The handler of SIGBUS calls this function, so it does no more than a system call.
void HoleFiller::start_timer() {
    constexpr itimerspec kOnce{.it_interval = {0, 0}, .it_value = {1, 0}};
    if (!timer_runs_.exchange(true)) timerfd_settime(timer_, 0, &kOnce, nullptr);
}

bool HoleFiller::fill(uintptr_t address, Credit* credit) {
    if (fd_ < 0 || credit == nullptr) return false;
    start_timer();
    if (!take_page(credit->left)) return false;
    if (!take_page(pool_)) {
        credit->left.fetch_add(kPage, std::memory_order_relaxed);
        return false;
    }
    uffdio_zeropage z{};
    z.range = {address / kPage * kPage, kPage};
    // EEXIST: another thread has allocated the page.
    if (ioctl(fd_, UFFDIO_ZEROPAGE, &z) != 0 && errno != EEXIST) return false;
    filled_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

}  // namespace roci::rocid
