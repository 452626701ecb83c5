// Rings between the engines and the conductor (rocid's control thread) for management datagrams of QP 1, and for ARP, neighbour
// discovery and echo frames of ports without a kernel interface.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.hpp"
#include "io/handover.hpp"
#include "neighbour/frames.hpp"
#include "wire/build.hpp"

namespace roci::io {

inline constexpr Qpn kGsiQpn{1};
inline constexpr uint32_t kGsiQkey = 0x80010000;  ///< well-known Q_Key of QP 1 (IBA 10.2.5)
inline constexpr uint32_t kMadLength = 256;       ///< IBA 13.4.2

/// A copy of a received MAD.
struct GsiFrame {
    uint32_t port = 0;
    Gid local, remote;
    MacAddress remote_mac;  ///< Ethernet source address: that of the peer or of the last router
    Qpn source;
    std::array<uint8_t, kMadLength> mad;
};
/// Carries MADs from an engine to the conductor. If the ring is full, the MAD is dropped and counted, because MAD protocols
/// tolerate loss.
using GsiRing = SpscRing<GsiFrame>;
inline constexpr uint32_t kGsiRingSize = 512;

/// A MAD to be sent as one UD SEND Only packet from QP 1.
struct GsiSend {
    uint32_t port = 0;
    wire::PathTemplate path{};
    Qpn dest = kGsiQpn;
    std::array<uint8_t, kMadLength> mad;
};

/// Carries frames other than RoCE that rocid must answer (PortAddresses::answers) from an engine to the conductor. If the ring is
/// full, the frame is dropped.
using FrameRing = SpscRing<neighbour::Frame>;
inline constexpr uint32_t kFrameRingSize = 64;

}  // namespace roci::io
