// Selects the frames of a tap by their headers: all of a port, or those of one QP.
#pragma once

#include <cstdint>

namespace roci::pmd {

enum class Direction : uint8_t { in = 1, out = 2 };  ///< values of the pcapng epb_flags option

/// Frames of one QP: those received are addressed to it, those sent were sent by it. Where a sent frame goes says nothing about
/// whose it is: the sender chose that.
struct TapFilter {
    uint32_t qpn = 0;  ///< 0: every frame
};

/// `sender`: as in io::TxFrame, of a frame that is sent.
bool wants(const TapFilter& filter, Direction direction, const uint8_t* frame, uint32_t length, uint32_t sender);

}  // namespace roci::pmd
