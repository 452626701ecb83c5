#pragma once
/// Moves pages into a file, which is then mapped at their address.

#include <cstdint>

#include "freeze.hpp"

namespace roci::memory {

struct Move {
    uint64_t address, length;  ///< whole pages
    int protection;            ///< of the mapping, PROT_*
    bool shared;               ///< a shared mapping (of a file with a closed descriptor), else private anonymous memory
    int fd;                    ///< its range [offset, +length) is a hole
    uint64_t offset;
};

/// Bytes that are frozen and moved at a time. Larger steps are hardly faster; with this step a writer waits about 100 µs at most.
inline constexpr uint64_t kMoveStep = 256ull << 10;

/// Moves the pages in ascending order. Pages that hold only zeros stay holes in the file, so untouched memory costs nothing.
/// @return bytes moved: less than the length if memory ran out or the mapping cannot be replaced.
uint64_t move_pages(const Move& move, Freezer& freezer);

}  // namespace roci::memory
