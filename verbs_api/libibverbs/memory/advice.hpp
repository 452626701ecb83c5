#pragma once
/// madvise() for programs whose private memory became a shared mapping by adoption (adopt.hpp).

#include <cstddef>

namespace roci::memory {

/// Executes madvise(2). After MADV_DONTNEED, adopted memory reads as zeros, like private memory, because allocators depend on
/// these zeros. A registered range remains registered and shared with rocid. The function takes no lock and allocates no memory,
/// because allocators call madvise() while they hold their own locks.
int advise(void* address, size_t length, int advice);

/// Called before each adoption. Before the first call of note_adoption(), advise() only executes the system call.
void note_adoption();

}  // namespace roci::memory
