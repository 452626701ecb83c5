#pragma once
/// Descriptors for memory that the program itself has mapped shared.

#include "maps.hpp"

namespace roci::memory {

/// A descriptor of the regular file (memfd, shm, hugetlbfs, …) behind a shared mapping, found in /proc/self/map_files (needs
/// CAP_CHECKPOINT_RESTORE), among the open descriptors, or by its path: whichever is the same file by device and inode.
/// @param writable  in: it has to be open for writing if possible; out: it is
/// @param length    out: of the file, bytes
Fd open_mapped_file(const Vma& vma, bool& writable, uint64_t& length);

}  // namespace roci::memory
