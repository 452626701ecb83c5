#include "wire/icrc.hpp"

#include <cstring>

#include "base/stage.hpp"
#include "wire/crc/constants.hpp"
#include "wire/crc/kernel.hpp"
#include "wire/packet.hpp"

namespace roci::wire {
namespace {

/// Returns the CRC-32 register after eight bytes of ones. These bytes replace the LRH, because RoCEv2 has no LRH.
constexpr uint32_t after_ones() {
    uint32_t state = 0xffffffff;
    for (int byte = 0; byte < 8; ++byte) state = state >> 8 ^ crc::kByteTable[(state ^ 0xff) & 0xff];
    return state;
}
constexpr uint32_t kSeed = after_ones();

constexpr uint32_t kMaxIpHeader = 60;
constexpr uint32_t kTail = kUdpLength + kBthLength;

/// Masks with ones in the fields that may change in the network (A17.3.3). IPv4: type of service, TTL, checksum. IPv6: traffic
/// class, flow label, hop limit. UDP: checksum. BTH: the byte with FECN, BECN and six reserved bits.
constexpr uint8_t kIpv4Mask[kIpv4Length] = {0, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xff, 0xff};
constexpr uint8_t kIpv6Mask[kIpv6Length] = {0x0f, 0xff, 0xff, 0xff, 0, 0, 0, 0xff};
constexpr uint8_t kTailMask[kTail] = {0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0xff};
static_assert(kCopyingStep == crc::kCopyStep && kMaxOverhead <= crc::kMostHead + kEthLength);
static_assert(kIpv6Length + kTail <= crc::Mask::kLength);

template <uint32_t kIpLength>
constexpr crc::Mask mask_of(const uint8_t (&ip)[kIpLength]) {
    crc::Mask m;
    for (uint32_t i = 0; i < kIpLength; ++i) m.bits[i] = ip[i];
    for (uint32_t i = 0; i < kTail; ++i) m.bits[kIpLength + i] = kTailMask[i];
    return m;
}
constexpr crc::Mask kIpv4 = mask_of(kIpv4Mask), kIpv6 = mask_of(kIpv6Mask);

/// Computes the ICRC of a packet whose IPv4 header has options. Such packets are rare. Their headers can be longer than
/// crc::Mask.
[[gnu::cold, gnu::noinline]] uint32_t icrc_with_options(const uint8_t* l3, uint32_t length, uint32_t ip_header_length) {
    uint8_t head[kMaxIpHeader + kTail];
    const uint32_t head_length = ip_header_length + kTail;
    std::memcpy(head, l3, head_length);
    for (uint32_t i = 0; i < kIpv4Length; ++i) head[i] |= kIpv4Mask[i];
    for (uint32_t i = 0; i < kTail; ++i) head[ip_header_length + i] |= kTailMask[i];
    const uint32_t state = crc::crc(kSeed, head, head_length, crc::kNoMask);
    return ~crc::crc(state, l3 + head_length, length - head_length, crc::kNoMask);
}

}  // namespace

uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length) {
    ROCI_STAGE(icrc);
    if (ipv6) return ~crc::crc(kSeed, l3, length, kIpv6);
    if (ip_header_length == kIpv4Length) return ~crc::crc(kSeed, l3, length, kIpv4);
    return icrc_with_options(l3, length, ip_header_length);
}

uint32_t icrc_copying(uint8_t* l3, uint32_t head_length, bool ipv6, const uint8_t* from, uint32_t length) {
    ROCI_STAGE(icrc);
    return ~crc::copying(kSeed, l3, head_length, ipv6 ? kIpv6 : kIpv4, from, length);
}

}  // namespace roci::wire
