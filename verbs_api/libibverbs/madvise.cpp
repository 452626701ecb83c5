// The program's madvise(): it comes here first, because we are loaded before the C library.
#include <sys/mman.h>

#include "memory/advice.hpp"

extern "C" __attribute__((visibility("default"))) int madvise(void* address, size_t length, int advice) noexcept {
    return roci::memory::advise(address, length, advice);
}
