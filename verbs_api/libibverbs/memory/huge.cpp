#include "huge.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace roci::memory {

Collapser::~Collapser() {
    if (reserved_ != 0) ::munmap(pointer(reserved_), 2 * kHugePage);
}

bool Collapser::reserve() {
    if (reserved_ != 0) return true;
    void* p = ::mmap(nullptr, 2 * kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    reserved_ = reinterpret_cast<uint64_t>(p);
    return true;
}

bool Collapser::make_huge(uint64_t address, uint64_t length, uint64_t offset) {
    if (refused_ || length != kHugePage || address % kHugePage != 0 || offset % kHugePage != 0 || !reserve()) return false;
    void* aligned = pointer((reserved_ + kHugePage - 1) / kHugePage * kHugePage);
    const int flags = MAP_SHARED | MAP_FIXED;
    if (::mmap(aligned, kHugePage, PROT_READ | PROT_WRITE, flags, fd_, static_cast<off_t>(offset)) == MAP_FAILED) return false;
    const int saved = errno;
    const char zero = 0;  // the kernel collapses a range only if the range contains a page
    const bool made =
        ::pwrite(fd_, &zero, 1, static_cast<off_t>(offset)) == 1 && ::madvise(aligned, kHugePage, MADV_COLLAPSE) == 0;
    refused_ = !made && errno != EAGAIN;  // a further attempt would take the same time to search for a huge page, and fail too
    errno = saved;
    return made;
}

}  // namespace roci::memory
