#pragma once
/// madvise() for a program whose private memory became shared by adoption.

#include <cstddef>

namespace roci::memory {

/// As the system call, but MADV_DONTNEED gives zeros on adopted memory too, as it does on the private memory that the program
/// believes it to be (allocators rely on it). A registered range stays registered: rocid sees the same zeros, and what is written
/// later on both sides. Takes no lock and allocates nothing, since allocators call it with theirs held.
int advise(void* address, size_t length, int advice);

/// From now on there may be adopted memory.
void note_adoption();

}  // namespace roci::memory
