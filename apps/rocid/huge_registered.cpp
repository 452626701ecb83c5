#include "huge_registered.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace roci::rocid {
namespace {

constexpr uintptr_t kHugePage = 2 << 20;

/// Maps the memfd at the first multiple of kHugePage in [address, +2 * kHugePage), and turns its first page into a huge page.
/// Returns 0 or an errno.
int collapse_in(int fd, void* address) {
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) / kHugePage * kHugePage;
    void* page = reinterpret_cast<void*>(aligned);
    if (mmap(page, kHugePage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return errno;
    const char zero = 0;  // the kernel collapses a range only if the range contains a page
    if (pwrite(fd, &zero, 1, 0) != 1) return errno;
    return madvise(page, kHugePage, MADV_COLLAPSE) == 0 ? 0 : errno;
}

}  // namespace

std::string_view huge_registered_text(int error) {
    if (error == 0) return "stay huge";
    if (error == EINVAL)
        return "become ordinary pages: the kernel has no MADV_COLLAPSE (Linux 6.1), or no transparent huge pages";
    return "became ordinary pages at the start of rocid: the kernel had no free huge page";
}

int try_huge_page() {
    const int fd = memfd_create("rocid-huge-page", MFD_CLOEXEC);
    if (fd < 0) return errno;
    int error = ENOMEM;
    if (ftruncate(fd, kHugePage) == 0) {
        void* room = mmap(nullptr, 2 * kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room != MAP_FAILED) {
            error = collapse_in(fd, room);
            munmap(room, 2 * kHugePage);
        }
    }
    close(fd);
    return error;
}

}  // namespace roci::rocid
