// Predicts and checks the identification in a peer's IPv4 header. The ICRC covers the identification, but the socket does not
// report the identification. So the receiver predicts the identification. If the prediction is wrong, the receiver computes the
// identification from the ICRC. A peer with a UDP socket sends identification 0, or 0, 1, 2 … within a segmented datagram. The
// kernel's Soft-RoCE and NICs use consecutive numbers.
#pragma once

#include <array>
#include <cstdint>

namespace roci::pmd {

class UdpPeers {
public:
    struct Peer {
        uint64_t name = 0;       ///< hash of source address and port
        uint16_t next = 0;       ///< expected identification of the next frame
        uint16_t candidate = 0;  ///< the last refused identification, which the next frame may confirm
        bool known = false, has_candidate = false;
    };
    /// Returns the entry of a peer. Two peers with the same index share an entry: each peer replaces the other peer. After a
    /// replacement, believe() accepts the first identification without a check.
    Peer& of(uint64_t name) {
        Peer& p = peers_[(name * 0x9e3779b97f4a7c15ull) >> 56];
        if (p.name != name) p = {name};
        return p;
    }
    /// Returns true if the identification `id` is plausible. The ICRC of the frame is right with `id`, but one of 65,536 corrupt
    /// frames also has such an identification. The function accepts the first identification of a peer. It accepts a later
    /// identification in a window around the expected one, or below kSegments, or less than 1,024 above the last refused
    /// identification. Stores `id` as the accepted or refused identification of the peer.
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
