// Selects the frames that a tap records: all frames of a port, or the frames of one QP.
#pragma once

#include <cstdint>

namespace roci::pmd {

enum class Direction : uint8_t { in = 1, out = 2 };  ///< values of the pcapng epb_flags option

/// Selects received frames that are addressed to the QP, and frames that the QP sent. The headers of a sent frame do not identify
/// the sending QP, so the filter needs the sender (io::TxFrame::sender).
struct TapFilter {
    uint32_t qpn = 0;  ///< 0 selects every frame
};

/// Returns true if the filter selects the frame. For a sent frame, `sender` is io::TxFrame::sender.
bool wants(const TapFilter& filter, Direction direction, const uint8_t* frame, uint32_t length, uint32_t sender);

}  // namespace roci::pmd
