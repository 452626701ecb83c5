// Returns the packets of one direction of a connection. If the capture contains a packet at both ends, the result contains the
// packet only once.
#pragma once

#include <vector>

#include "frame.hpp"

namespace roci::plot {

struct Sighting {
    const Frame* frame = nullptr;
    bool lost = false;    ///< captured at the sender, but not at the receiver
    bool marked = false;  ///< marked Congestion Experienced at one of the ends
};

struct View {
    std::vector<Sighting> packets;
    bool both_ends = false;  ///< true: both ends are in the capture, so Sighting::lost is valid
};

/// Returns the packets of `flow`, or an empty view for kNoFlow. If `at_receiver` is true and both ends are in the capture,
/// received packets have the times at the receiver.
View view_of(const Capture& capture, uint32_t flow, bool at_receiver);

}  // namespace roci::plot
