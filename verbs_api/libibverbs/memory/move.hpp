#pragma once
/// Moves pages into a file, which is then mapped at their address.

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

/// The number of bytes that are frozen and moved at a time: one huge page, so that it can remain a huge page. A writer waits
/// about 1 ms at most.
inline constexpr uint64_t kMoveStep = kHugePage;

/// Moves the pages in ascending order. Pages that are untouched or contain only zeros stay holes in the file and use no memory.
/// The file gets a huge page (MADV_COLLAPSE, Linux 6.1) where the program has touched a whole huge page of addresses and the
/// file's offset is aligned like the address. This does not depend on /sys/kernel/mm/transparent_hugepage/shmem_enabled.
/// @return bytes moved; less than the length if memory ran out or the mapping cannot be replaced
uint64_t move_pages(const Move& move, Freezer& freezer);

}  // namespace roci::memory
