// The property that the parser fuzzers test, whatever drives them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/packet.hpp"

namespace roci::test {

/// Feeds one frame to parse(), from a heap block of just its size so that an address sanitizer sees any read beyond. Whatever the
/// bytes are: the verdict is a known one; on ok the payload lies in the frame, all accessors work, and the frame built again from
/// the packet parses to the same packet. Aborts with a hex dump if not. Returns the verdict.
wire::Verdict check_parse(const uint8_t* data, size_t size);

}  // namespace roci::test
