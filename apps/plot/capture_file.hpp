// Reads a capture in pcap or pcapng format, made by any program.
#pragma once

#include <cstddef>
#include <string>

#include "frame.hpp"

namespace roci::plot {

inline constexpr size_t kMostFrames = 1'000'000;  ///< to make a page of this many frames takes some 400 MB of memory

/// Reads the file. `name` is its name in messages. Throws Failure if the file cannot be read or has no RoCEv2 packets. From a
/// truncated file it returns the packets before the end, with the reason in `cut`.
Capture read_capture(const std::string& path, const std::string& name, size_t most_frames = kMostFrames);

}  // namespace roci::plot
