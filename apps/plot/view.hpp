// The packets of one direction for the analysis. Each packet occurs once, even if the capture contains it at both ends.
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
    bool both_ends = false;  ///< both ends are in the capture, so `lost` is known
};

/// Returns the view of `flow`; kNoFlow gives an empty view. If `at_receiver` is true and both ends are in the capture, the times
/// of received packets are those of the receiver.
View view_of(const Capture& capture, uint32_t flow, bool at_receiver);

}  // namespace roci::plot
