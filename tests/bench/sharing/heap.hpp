// The heap of the program `sharing` (heap.cpp).
#pragma once

namespace roci::sharing {

/// Returns true if `p` points into an object of the heap that is not aligned to cache lines, so that another object may be in the
/// same line.
bool may_share_its_line(const void* p);

}  // namespace roci::sharing
