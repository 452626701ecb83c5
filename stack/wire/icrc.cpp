#include "wire/icrc.hpp"

#include <isa-l/crc.h>

#include <cstring>

#include "wire/packet.hpp"

namespace roci::wire {
namespace {

/// CRC-32 (reflected 0xEDB88320, inverted at both ends) of eight bytes of ones: they stand for the LRH that RoCEv2 does not have.
constexpr uint32_t crc_of_ones() {
    uint32_t crc = 0xffffffff;
    for (int bit = 0; bit < 64; ++bit) crc = (crc >> 1) ^ (((crc & 1) ^ 1) != 0 ? 0xedb88320u : 0u);
    return ~crc;
}
constexpr uint32_t kSeed = crc_of_ones();

constexpr uint32_t kMaxIpHeader = 60;
constexpr uint32_t kUdpChecksumOffset = 6;
constexpr uint32_t kBthResv8a = 4;  // FECN, BECN and six reserved bits: switches may change them

/// Type of service, TTL and checksum change on the way.
void mask_ipv4(uint8_t* h) {
    h[1] = 0xff;
    h[8] = 0xff;
    h[10] = h[11] = 0xff;
}
/// Traffic class, flow label and hop limit change on the way; the version does not.
void mask_ipv6(uint8_t* h) {
    h[0] |= 0x0f;
    h[1] = h[2] = h[3] = 0xff;
    h[7] = 0xff;
}

}  // namespace

uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length) {
    uint8_t head[kMaxIpHeader + kUdpLength + kBthLength];
    const uint32_t head_length = ip_header_length + kUdpLength + kBthLength;
    std::memcpy(head, l3, head_length);
    ipv6 ? mask_ipv6(head) : mask_ipv4(head);
    uint8_t* udp = head + ip_header_length;
    udp[kUdpChecksumOffset] = udp[kUdpChecksumOffset + 1] = 0xff;
    udp[kUdpLength + kBthResv8a] = 0xff;
    // crc32_gzip_refl inverts seed and result itself, so partial results chain.
    const uint32_t crc = crc32_gzip_refl(kSeed, head, head_length);
    return crc32_gzip_refl(crc, l3 + head_length, length - head_length);
}

}  // namespace roci::wire
