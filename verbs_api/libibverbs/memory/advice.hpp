#pragma once
/// madvise() for a program whose private memory became shared by adoption.

#include <cstddef>

namespace roci::memory {

/// Like the system call, but MADV_DONTNEED gives zeros also on adopted memory, as on private memory (allocators rely on it). A
/// registered range remains registered and shared with rocid. Takes no lock and allocates no memory, because allocators call it
/// with their own locks held.
int advise(void* address, size_t length, int advice);

/// Called before the first adoption.
void note_adoption();

}  // namespace roci::memory
