#pragma once
/// Descriptors of memory that the program itself has mapped as shared.

#include "maps.hpp"

namespace roci::memory {

/// Opens the regular file (memfd, shm, hugetlbfs, …) behind a shared mapping. Tries /proc/self/map_files (needs
/// CAP_CHECKPOINT_RESTORE), the open descriptors, and the path. Device and inode must match. Returns an empty Fd on failure.
/// @param writable  in: true to open for writing if possible; out: true if the descriptor is open for writing
/// @param length    out: bytes of the file
Fd open_mapped_file(const Vma& vma, bool& writable, uint64_t& length);

}  // namespace roci::memory
