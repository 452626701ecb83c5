#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "freeze.hpp"
#include "sys.hpp"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace roci::memory {
namespace {

constexpr uint64_t kWpShared = 1ull << 12;       ///< UFFD_FEATURE_WP_HUGETLBFS_SHMEM, Linux 5.19
constexpr uint64_t kWpUnpopulated = 1ull << 13;  ///< UFFD_FEATURE_WP_UNPOPULATED, Linux 6.4

/// The sets of userfaultfd features to request, the best set first. If the kernel refuses a set because of unknown features,
/// open() requests the next set.
constexpr uint64_t kFeatureSets[] = {kWpShared | kWpUnpopulated, kWpShared, 0};
std::atomic<unsigned> feature_set{0};

/// Opens a userfaultfd. If the process is privileged, the userfaultfd also blocks writes by the kernel. Otherwise it blocks only
/// writes in user mode.
Fd open_uffd() {
    Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
    if (!fd && errno == EPERM) fd.reset(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
    return fd;
}

/// Returns true if the userfaultfd has its own inode. Kernels before 5.12 give all userfaultfds the same inode. On such a kernel,
/// KeptFd could not distinguish the library's userfaultfd from a userfaultfd of the program.
bool can_be_told(int fd) {
    const Fd other(::eventfd(0, EFD_CLOEXEC));
    struct stat ours {
    }, any{};
    return ::fstat(fd, &ours) == 0 && ::fstat(other.get(), &any) == 0 && ours.st_ino != any.st_ino;
}

class UffdFreezer final : public Freezer {
public:
    bool open(KeptFd& kept) {
        fd_ = kept.get();
        if (fd_ >= 0) return true;
        for (unsigned set = feature_set; set < std::size(kFeatureSets); set++) {
            own_ = open_uffd();
            fd_ = own_.get();
            if (fd_ < 0) return false;
            uffdio_api api{.api = UFFD_API, .features = kFeatureSets[set], .ioctls = 0};
            if (::ioctl(fd_, UFFDIO_API, &api) != 0) continue;
            feature_set = set;
            if (!(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP)) return false;
            if (can_be_told(fd_)) kept.keep(std::move(own_));
            return true;
        }
        return false;
    }

    bool cover(uint64_t address, uint64_t length, bool shared) override {
        if (shared && !(kFeatureSets[feature_set] & kWpShared)) return false;
        return enlist(address, length, UFFDIO_REGISTER_MODE_WP);
    }

    bool holds_untouched() const override { return (kFeatureSets[feature_set] & kWpUnpopulated) != 0; }

    bool freeze(uint64_t address, uint64_t length, int) override {
        if (protect(address, length, UFFDIO_WRITEPROTECT_MODE_WP)) return true;
        protect(address, length, 0);  // undoes a protection of a part of the range
        return false;
    }

    void thaw(uint64_t address, uint64_t length, int, bool replaced) override {
        if (!replaced) protect(address, length, 0);
        uffdio_range range{address, length};
        ::ioctl(fd_, UFFDIO_WAKE, &range);
    }

    bool keep_out(uint64_t address, uint64_t length) override {
        return enlist(address, length, UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MISSING);
    }

    /// The kernel can add a mode to a registered range, but cannot remove a mode. So this function unregisters the range and
    /// registers it again.
    void let_in(uint64_t address, uint64_t length) override {
        uffdio_range range{address, length};
        ::ioctl(fd_, UFFDIO_UNREGISTER, &range);  // also wakes the threads
        enlist(address, length, UFFDIO_REGISTER_MODE_WP);
    }

private:
    bool enlist(uint64_t address, uint64_t length, uint64_t mode) {
        uffdio_register range{.range = {address, length}, .mode = mode, .ioctls = 0};
        return ::ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
    }

    bool protect(uint64_t address, uint64_t length, uint64_t mode) {
        uffdio_writeprotect protect{.range = {address, length}, .mode = mode};
        int result;
        do {
            result = ::ioctl(fd_, UFFDIO_WRITEPROTECT, &protect);
        } while (result != 0 && errno == EAGAIN);
        return result == 0;
    }

    int fd_ = -1;
    Fd own_;  ///< owns a descriptor that cannot be kept
};

}  // namespace

std::unique_ptr<Freezer> make_uffd_freezer(KeptFd& kept) {
    auto freezer = std::make_unique<UffdFreezer>();
    return freezer->open(kept) ? std::move(freezer) : nullptr;
}

}  // namespace roci::memory
