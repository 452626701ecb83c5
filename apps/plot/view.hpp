// The packets of one direction as the analysis sees them: each once, though a capture of both ends has it twice.
#pragma once

#include <vector>

#include "frame.hpp"

namespace roci::plot {

struct Sighting {
    const Frame* frame = nullptr;
    bool lost = false;    ///< seen at the sender, never at the receiver
    bool marked = false;  ///< Congestion Experienced, at either end
};

struct View {
    std::vector<Sighting> packets;
    bool both_ends = false;  ///< `lost` is known
};

/// `flow`: kNoFlow gives an empty view. `at_receiver`: times are those of the receiving end, if both are in the capture.
View view_of(const Capture& capture, uint32_t flow, bool at_receiver);

}  // namespace roci::plot
