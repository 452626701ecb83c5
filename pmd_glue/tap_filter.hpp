// Selects the frames of a tap by their headers: all of a port, or those of one QP.
#pragma once

#include <array>
#include <cstdint>

namespace roci::pmd {

enum class Direction : uint8_t { in = 1, out = 2 };  ///< values of the pcapng epb_flags option

/// One QP's frames: those that come are addressed to it; those that go name the QP at the other end and its address (connected
/// transports) or carry its number as the source (DETH).
struct TapFilter {
    uint32_t qpn = 0;                    ///< 0: every frame
    uint32_t peer_qpn = 0;               ///< 0: not connected; the DETH names the QP
    std::array<uint8_t, 16> peer_gid{};  ///< an IPv4 address as ::ffff:a.b.c.d
};

bool wants(const TapFilter& filter, Direction direction, const uint8_t* frame, uint32_t length);

}  // namespace roci::pmd
