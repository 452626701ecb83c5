#pragma once
/// Descriptors of memory that the program itself has mapped as shared.

#include "maps.hpp"

namespace roci::memory {

/// Opens the regular file (memfd, shm, hugetlbfs, …) of a shared mapping. Tries /proc/self/map_files (needs
/// CAP_CHECKPOINT_RESTORE), then the open descriptors, then the path. The device and the inode of the file must be those of the
/// mapping. Returns an empty Fd on failure.
/// @param writable  in: true to open for writing if possible; out: true if the descriptor is open for writing
/// @param length    out: bytes of the file
Fd open_mapped_file(const Vma& vma, bool& writable, uint64_t& length);

}  // namespace roci::memory
