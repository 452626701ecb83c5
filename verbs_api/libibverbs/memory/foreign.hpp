#pragma once
/// Descriptors of memory that the program itself has mapped as shared.

#include "maps.hpp"

namespace roci::memory {

/// Opens the regular file (memfd, shm, hugetlbfs, …) of a shared mapping: by /proc/self/map_files (needs CAP_CHECKPOINT_RESTORE),
/// from the open descriptors, or by its path. Device and inode must match.
/// @param writable  in: open for writing if possible; out: whether it is open for writing
/// @param length    out: bytes of the file
Fd open_mapped_file(const Vma& vma, bool& writable, uint64_t& length);

}  // namespace roci::memory
