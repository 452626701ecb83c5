#include "huge_chunks.hpp"

#include <sys/mman.h>

namespace roci::pmd {

/// Maps memory that is aligned to the size of a huge page: maps one huge page more than requested, and unmaps the excess. If the
/// kernel provides no transparent huge pages (transparent_hugepage/enabled is "never"), the memory consists of ordinary pages.
void* HugeChunks::take(size_t bytes) {
    const size_t size = unit();
    void* mapped = mmap(nullptr, bytes + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const first = static_cast<std::byte*>(mapped);
    auto* const begin = first + (size - reinterpret_cast<uintptr_t>(first) % size) % size;
    if (begin != first) munmap(first, size_t(begin - first));
    munmap(begin + bytes, size_t(first + size - begin));
    madvise(begin, bytes, MADV_HUGEPAGE);
    return begin;
}

void HugeChunks::give_back(void* chunk, size_t bytes) noexcept { munmap(chunk, bytes); }

}  // namespace roci::pmd
