#pragma once
/// madvise() for a program whose private memory became shared by adoption.

#include <cstddef>

namespace roci::memory {

/// Like the system call, but MADV_DONTNEED also gives zeros on adopted memory, as it does on private memory; allocators rely on
/// zeros. A registered range remains registered and shared with rocid. The function takes no lock and allocates no memory,
/// because allocators call it while they hold their own locks.
int advise(void* address, size_t length, int advice);

/// Called before the first adoption.
void note_adoption();

}  // namespace roci::memory
