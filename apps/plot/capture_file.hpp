// Reads a capture: pcap or pcapng, of any program.
#pragma once

#include <cstddef>
#include <string>

#include "frame.hpp"

namespace roci::plot {

inline constexpr size_t kMostFrames = 1'000'000;  ///< a page of so many takes some 400 MB of memory while it is made

/// Reads the file. `name`: what messages call it. Throws Failure if it cannot be read or has no RoCEv2 packets; a file that is
/// cut gives what it has, with the reason in `cut`.
Capture read_capture(const std::string& path, const std::string& name, size_t most_frames = kMostFrames);

}  // namespace roci::plot
