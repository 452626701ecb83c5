#pragma once
/// madvise() for a program whose private memory became shared by adoption.

#include <cstddef>

namespace roci::memory {

/// Like the system call, but after MADV_DONTNEED adopted memory also reads as zeros, as private memory does; allocators rely on
/// zeros. A registered range remains registered and shared with rocid. The function takes no lock and allocates no memory,
/// because allocators call madvise() while they hold their own locks.
int advise(void* address, size_t length, int advice);

/// Called before each adoption. Until the first call of note_adoption(), advise() only makes the system call.
void note_adoption();

}  // namespace roci::memory
