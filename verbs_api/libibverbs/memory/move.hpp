#pragma once
/// Moves pages into a file, which is then mapped at their address.

#include <cstdint>

#include "freeze.hpp"
#include "sys.hpp"

namespace roci::memory {

struct Move {
    uint64_t address, length;  ///< whole pages
    int protection;            ///< of the mapping, PROT_*
    bool shared;               ///< a shared mapping (of a file with a closed descriptor), else private anonymous memory
    int fd;                    ///< its range [offset, +length) is a hole
    uint64_t offset;
};

/// Bytes that are frozen and moved at a time: a huge page, so that it can stay one. A writer waits about 1 ms at most.
inline constexpr uint64_t kMoveStep = kHugePage;

/// Moves the pages in ascending order. Untouched pages stay holes in the file and cost nothing, as do pages that hold only zeros.
/// If a whole huge page of the address space was touched and the file's offset is aligned like the address, the file gets a huge
/// page, too (MADV_COLLAPSE, Linux 6.1), whatever /sys/kernel/mm/transparent_hugepage/shmem_enabled says.
/// @return bytes moved: less than the length if memory ran out or the mapping cannot be replaced.
uint64_t move_pages(const Move& move, Freezer& freezer);

}  // namespace roci::memory
