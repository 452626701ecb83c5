// The property that both fuzzers of the parser check.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/packet.hpp"

namespace roci::test {

/// Parses the frame from a heap block of exactly its size, so that the address sanitizer detects any read beyond the
/// block. The verdict must be valid for any bytes. If the verdict is ok or bad_icrc, the payload must be within the
/// frame, all accessors must work, and a frame built from the packet must give the same packet. If one of these
/// conditions is false, the function prints a hex dump and aborts. Returns the verdict.
wire::Verdict check_parse(const uint8_t* data, size_t size);

}  // namespace roci::test
