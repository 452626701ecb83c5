// The heap of the program `sharing` (heap.cpp).
#pragma once

namespace roci::sharing {

/// Returns true if `p` points into a heap object that is not aligned to cache lines. Another object may be in the
/// same line as such an object.
bool may_share_its_line(const void* p);

}  // namespace roci::sharing
