#include "tap_filter.hpp"

#include "base/bytes.hpp"
#include "wire/packet.hpp"

namespace roci::pmd {
namespace {

/// Returns the offset of the BTH in a RoCEv2 frame, or 0 if the frame is not RoCEv2. Verifies no checksum.
uint32_t find_bth(const uint8_t* frame, uint32_t length) {
    uint32_t at = wire::kEthLength;
    if (length < at + wire::kVlanLength) return 0;
    uint16_t type = load_be<uint16_t>(frame + 12);
    if (type == wire::kEtherVlan) {
        type = load_be<uint16_t>(frame + 16);
        at += wire::kVlanLength;
    }
    uint32_t ip_length = 0;
    if (type == wire::kEtherIpv4 && length >= at + wire::kIpv4Length)
        ip_length = uint32_t(frame[at] & 15) * 4;
    else if (type == wire::kEtherIpv6 && length >= at + wire::kIpv6Length)
        ip_length = wire::kIpv6Length;
    else
        return 0;
    const uint32_t udp = at + ip_length, bth = udp + wire::kUdpLength;
    const bool roce = length >= bth + wire::kBthLength && load_be<uint16_t>(frame + udp + 2) == wire::kRoceUdpPort;
    return roce ? bth : 0;
}

}  // namespace

bool wants(const TapFilter& filter, Direction direction, const uint8_t* frame, uint32_t length, uint32_t sender) {
    if (filter.qpn == 0) return true;
    if (direction == Direction::out) return sender == filter.qpn;
    const uint32_t bth = find_bth(frame, length);
    return bth != 0 && load_be24(frame + bth + 5) == filter.qpn;  // destination QP in the BTH (IBA 9.2.1)
}

}  // namespace roci::pmd
