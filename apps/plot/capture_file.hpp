// Reads a capture file of any program, in pcap or pcapng format.
#pragma once

#include <cstddef>
#include <string>

#include "frame.hpp"

namespace roci::plot {

inline constexpr size_t kMostFrames = 1'000'000;  ///< the creation of a page from this many frames needs about 400 MB of memory

/// Reads at most `most_frames` RoCEv2 packets of the file. `name` is the file's name in messages. Throws Failure if the file
/// cannot be read or has no RoCEv2 packets. If the file is truncated, returns the packets before the end of the file and sets
/// Capture::cut.
Capture read_capture(const std::string& path, const std::string& name, size_t most_frames = kMostFrames);

}  // namespace roci::plot
