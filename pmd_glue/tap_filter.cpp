#include "tap_filter.hpp"

#include <algorithm>
#include <optional>

#include "base/bytes.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

/// Finds the headers of a RoCEv2 frame, as far as a tap needs them. Verifies no checksum.
struct Headers {
    const uint8_t* bth;
    uint32_t room;  ///< bytes from the BTH to the frame's end
    std::array<uint8_t, 16> destination;
};

std::array<uint8_t, 16> mapped(const uint8_t* ipv4) {
    std::array<uint8_t, 16> out{};
    out[10] = out[11] = 0xff;
    std::copy_n(ipv4, 4, out.begin() + 12);
    return out;
}

std::optional<Headers> find_headers(const uint8_t* frame, uint32_t length) {
    uint32_t at = wire::kEthLength;
    if (length < at + wire::kVlanLength) return {};
    uint16_t type = load_be<uint16_t>(frame + 12);
    if (type == wire::kEtherVlan) {
        type = load_be<uint16_t>(frame + 16);
        at += wire::kVlanLength;
    }
    Headers h{};
    uint32_t ip_length = 0;
    if (type == wire::kEtherIpv4 && length >= at + wire::kIpv4Length) {
        ip_length = uint32_t(frame[at] & 15) * 4;
        h.destination = mapped(frame + at + 16);
    } else if (type == wire::kEtherIpv6 && length >= at + wire::kIpv6Length) {
        ip_length = wire::kIpv6Length;
        std::copy_n(frame + at + 24, 16, h.destination.begin());
    } else {
        return {};
    }
    const uint32_t udp = at + ip_length, bth = udp + wire::kUdpLength;
    if (length < bth + wire::kBthLength || load_be<uint16_t>(frame + udp + 2) != wire::kRoceUdpPort) return {};
    h.bth = frame + bth;
    h.room = length - bth;
    return h;
}

uint32_t source_qpn(const Headers& h) {
    constexpr uint32_t kSource = wire::kBthLength + 5;  // DETH: Q_Key, reserved byte, source QP (IBA 9.3.1)
    return wire::opcode_info(h.bth[0]).has(wire::kDeth) && h.room >= kSource + 3 ? load_be24(h.bth + kSource) : 0;
}

}  // namespace

bool wants(const TapFilter& filter, Direction direction, const uint8_t* frame, uint32_t length) {
    if (filter.qpn == 0) return true;
    const auto h = find_headers(frame, length);
    if (!h) return false;
    const uint32_t to = load_be24(h->bth + 5);  // BTH's destination QP (IBA 9.2.1)
    if (direction == Direction::in) return to == filter.qpn;
    if (filter.peer_qpn == 0) return source_qpn(*h) == filter.qpn;
    return to == filter.peer_qpn && h->destination == filter.peer_gid;
}

}  // namespace roci::pmd
