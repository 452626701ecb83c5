// The heap of the program `sharing`. It can tell which objects may share a cache line with another object: those that
// are not aligned to lines. In glibc's heap, chance decides whether they share a line. Here such an object gets
// separate memory, which is never used again.
#include "heap.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kUnit = 16, kMost = 256 << 10, kRoom = size_t{1} << 30;
alignas(64) std::byte room[kRoom];
size_t used = 0;

bool in_room(const void* p) { return p >= room && p < room + kRoom; }

}  // namespace

bool roci::sharing::may_share_its_line(const void* p) { return in_room(p); }

void* operator new(size_t bytes) {
    const size_t rounded = bytes == 0 ? kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
    if (rounded <= kMost && kRoom - used >= rounded) {
        used += rounded;
        return room + used - rounded;
    }
    if (void* p = std::malloc(bytes)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
    if (!in_room(p)) std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
