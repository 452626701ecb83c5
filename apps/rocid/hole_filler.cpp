#include "hole_filler.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace roci::rocid {

HoleFiller::~HoleFiller() {
    if (fd_ >= 0) close(fd_);
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

bool HoleFiller::fill(uintptr_t address) {
    constexpr uint64_t kPage = 4096;
    if (fd_ < 0) return false;
    if (credit_.fetch_sub(kPage, std::memory_order_relaxed) < int64_t(kPage)) {
        credit_.store(0, std::memory_order_relaxed);
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
