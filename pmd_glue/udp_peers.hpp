// The identification that a peer's IPv4 header had. The socket hides it, and the ICRC covers it, so it is predicted, and found by
// the ICRC where the prediction fails. A peer over a UDP socket sends 0, or 0, 1, 2 … within a segmented datagram; the kernel's
// Soft-RoCE and NICs count.
#pragma once

#include <array>
#include <cstdint>

namespace roci::pmd {

class UdpPeers {
public:
    struct Peer {
        uint64_t name = 0;       ///< source address and port, hashed
        uint16_t next = 0;       ///< identification that the next frame is expected to have
        uint16_t candidate = 0;  ///< one outside of the window that a second frame may confirm
        bool known = false, has_candidate = false;
    };
    /// The peer's line. Two peers that share one replace each other, which costs each time the certainty of one frame.
    Peer& of(uint64_t name) {
        Peer& p = peers_[(name * 0x9e3779b97f4a7c15ull) >> 56];
        if (p.name != name) p = {name};
        return p;
    }
    /// Whether `id`, found by the ICRC, is to be believed; learns from it. The first identification of a peer is believed: it is
    /// right but for one corrupt frame in 65,536. Later ones must lie within a window ahead of the last one or below the largest
    /// number of segments, or be confirmed by the next frame.
    static bool believe(Peer& p, uint16_t id) {
        constexpr uint16_t kAhead = 1024, kBehind = 64, kSegments = 128;
        const auto ahead = uint16_t(id - p.next), behind = uint16_t(p.next - id);
        const bool follows = ahead < kAhead || behind <= kBehind;
        const bool confirmed = p.has_candidate && uint16_t(id - p.candidate) < kAhead;
        if (p.known && !follows && id >= kSegments && !confirmed) {
            p.candidate = id;
            p.has_candidate = true;
            return false;
        }
        p.known = true;
        p.has_candidate = false;
        if (!follows || ahead < kAhead) p.next = uint16_t(id + 1);
        return true;
    }

private:
    std::array<Peer, 256> peers_{};
};

}  // namespace roci::pmd
