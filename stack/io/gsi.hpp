// Management datagrams of QP 1, and the ARP, neighbour discovery and echo frames of ports without a kernel, on their way between
// the engines, which only carry them, and the conductor.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.hpp"
#include "io/handover.hpp"
#include "neighbour/frames.hpp"
#include "wire/build.hpp"

namespace roci::engine {

inline constexpr Qpn kGsiQpn{1};
inline constexpr uint32_t kGsiQkey = 0x80010000;  ///< everybody's with QP 1 (IBA 10.2.5)
inline constexpr uint32_t kMadLength = 256;       ///< IBA 13.4.2

/// A MAD that arrived, copied.
struct GsiFrame {
    uint32_t port = 0;
    Gid local, remote;
    MacAddress remote_mac;  ///< whoever handed the frame to us: the peer, or the router before it
    Qpn source;
    std::array<uint8_t, kMadLength> mad;
};
/// Engine → conductor. Full: the MAD is lost, which its protocol allows for, and counted.
using GsiRing = SpscRing<GsiFrame>;
inline constexpr uint32_t kGsiRingSize = 512;

/// A MAD to be sent, as one UD SEND Only from QP 1.
struct GsiSend {
    uint32_t port = 0;
    wire::PathTemplate path{};
    Qpn dest = kGsiQpn;
    std::array<uint8_t, kMadLength> mad;
};

/// Engine → conductor: frames that are not RoCE but that somebody must answer (PortAddresses::answers). Full: the frame is lost.
using FrameRing = SpscRing<neighbour::Frame>;
inline constexpr uint32_t kFrameRingSize = 64;

}  // namespace roci::engine
