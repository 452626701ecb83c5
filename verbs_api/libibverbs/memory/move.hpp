#pragma once
/// Moving pages into a file that takes their place at the same address.

#include <cstdint>

#include "freeze.hpp"

namespace roci::memory {

struct Move {
    uint64_t address, length;  ///< whole pages
    int protection;            ///< of the mapping, PROT_*
    bool shared;               ///< it is a shared mapping (of a file that we have given up), else private anonymous memory
    int fd;                    ///< its range [offset, +length) is a hole
    uint64_t offset;
};

/// Pages are frozen and moved so many bytes at a time: larger steps are hardly faster, and a writer waits about 100 µs at most.
inline constexpr uint64_t kMoveStep = 256ull << 10;

/// Moves the pages in ascending order. Pages that hold only zeros stay holes in the file, so untouched memory costs nothing.
/// @return bytes moved: less than the length when memory ran out or the mapping is of a kind that cannot be replaced.
uint64_t move_pages(const Move& move, Freezer& freezer);

}  // namespace roci::memory
