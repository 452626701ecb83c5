// Replaces madvise() for the program, because registered memory needs a different MADV_DONTNEED (memory/advice.hpp). The dynamic
// linker finds this symbol before the symbol of the C library.
#include <sys/mman.h>

#include "memory/advice.hpp"

extern "C" __attribute__((visibility("default"))) int madvise(void* address, size_t length, int advice) noexcept {
    return roci::memory::advise(address, length, advice);
}
