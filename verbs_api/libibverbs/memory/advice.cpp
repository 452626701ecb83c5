#include "advice.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "files.hpp"
#include "maps.hpp"

namespace roci::memory {
namespace {

constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18

std::atomic<bool> may_be_adopted{false};

int advise_kernel(uint64_t address, uint64_t length, int advice) { return int(::syscall(SYS_madvise, address, length, advice)); }

}  // namespace

void note_adoption() { may_be_adopted.store(true, std::memory_order_relaxed); }

int advise(void* address, size_t length, int advice) {
    const auto start = reinterpret_cast<uint64_t>(address);
    const bool discards = advice == MADV_DONTNEED || advice == kDontNeedLocked;
    const int result = advise_kernel(start, length, advice);
    if (result != 0 || !discards || !may_be_adopted.load(std::memory_order_relaxed)) return result;
    // For a shared mapping, MADV_DONTNEED has removed only the page table entries. MADV_REMOVE also removes the pages of the
    // file.
    char buffer[4096];
    VmaFinder finder{std::span<char>(buffer)};
    const uint64_t end = page_ceil(start + length);
    Vma vma;
    for (uint64_t at = start; at < end && finder.opened() && finder.find(at, vma); at = vma.end)
        if (is_adopted(vma)) advise_kernel(at, std::min(end, vma.end) - at, MADV_REMOVE);
    return 0;
}

}  // namespace roci::memory
