// Determines the identification in a peer's IPv4 header. The ICRC covers the identification, but the socket does not report the
// identification. The receiver therefore predicts the identification. If the prediction is wrong, the receiver computes the
// identification from the ICRC. A peer over a UDP socket sends 0, or 0, 1, 2 … within a segmented datagram. The kernel's
// Soft-RoCE and NICs use consecutive numbers.
#pragma once

#include <array>
#include <cstdint>

namespace roci::pmd {

class UdpPeers {
public:
    struct Peer {
        uint64_t name = 0;       ///< hash of source address and port
        uint16_t next = 0;       ///< expected identification of the next frame
        uint16_t candidate = 0;  ///< an identification outside of the window, which the next frame may confirm
        bool known = false, has_candidate = false;
    };
    /// Returns the entry of a peer. Two peers whose names have the same index share an entry: each of them replaces the other.
    /// After each replacement, the next frame's identification is accepted without a check against earlier ones.
    Peer& of(uint64_t name) {
        Peer& p = peers_[(name * 0x9e3779b97f4a7c15ull) >> 56];
        if (p.name != name) p = {name};
        return p;
    }
    /// Returns true if the identification `id`, with which the ICRC is right, is plausible. Records `id`. The first
    /// identification of a peer is accepted, although one corrupt frame in 65,536 yields a wrong one. A later identification is
    /// accepted if it lies in a window around the last one, if it is below kSegments, or if it follows the peer's refused
    /// candidate.
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
