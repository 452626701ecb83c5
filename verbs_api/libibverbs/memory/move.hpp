#pragma once
/// Moves pages into a file and maps the file at the address of the pages.

#include <cstdint>

#include "freeze.hpp"
#include "sys.hpp"

namespace roci::memory {

struct Move {
    uint64_t address, length;  ///< whole pages
    int protection;            ///< PROT_* of the mapping
    bool shared;               ///< true: a shared mapping of a file whose descriptor was closed; false: private anonymous memory
    int fd;                    ///< the target file; its range [offset, +length) is a hole
    uint64_t offset;
};

/// The number of bytes that are frozen and moved at a time. It is the size of a huge page, so that a huge page is moved as a
/// whole. A writer usually waits at most about 1 ms.
inline constexpr uint64_t kMoveStep = kHugePage;

/// Moves the pages in ascending order.
///
/// If the program has touched all pages of an aligned 2 MiB block, and the file's offset is aligned too, the block becomes a huge
/// page of the file (MADV_COLLAPSE, Linux 6.1). MADV_COLLAPSE does not depend on
/// /sys/kernel/mm/transparent_hugepage/shmem_enabled. A long range of untouched pages is replaced in one step (Linux 6.7). Except
/// in huge pages, a page that is untouched or contains only zeros remains a hole in the file and uses no memory.
/// @return number of bytes moved. It is less than the length if memory ran out, or if a part of the mapping cannot be frozen or
///         replaced.
uint64_t move_pages(const Move& move, Freezer& freezer);

}  // namespace roci::memory
