// The property that both parser fuzzers test.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/packet.hpp"

namespace roci::test {

/// Parses the frame from a heap block of exactly its size, so that the address sanitizer detects any read beyond it. For any
/// bytes the verdict must be valid. If the verdict is ok or bad_icrc, the payload must be within the frame, all accessors must
/// work, and a frame built from the packet must parse to the same packet. A violation aborts with a hex dump. Returns the
/// verdict.
wire::Verdict check_parse(const uint8_t* data, size_t size);

}  // namespace roci::test
