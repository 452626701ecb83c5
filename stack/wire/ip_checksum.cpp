#include "wire/ip_checksum.hpp"

#include "base/bytes.hpp"

namespace roci::wire {
namespace {

constexpr uint32_t kEncapsulation = 4;  // 2 bytes of EtherType, 2 reserved bytes
constexpr uint32_t kLeastHeader = 20;
constexpr uint16_t kTypeIpv4 = 0x0800;
constexpr uint16_t kFragment = 0x3fff;  // mask of the more-fragments bit and the fragment offset
constexpr uint32_t kHeaderChecksum = 10;
constexpr uint8_t kTcp = 6, kUdp = 17;

/// Properties of an IPv4 packet. Offsets start at the IP header.
struct Ipv4 {
    uint32_t header = 0;            ///< length of the header, bytes
    uint32_t segment = 0;           ///< bytes of the TCP or UDP segment; 0: another protocol, a fragment, or a wrong length
    uint32_t segment_checksum = 0;  ///< offset of the segment's checksum
    uint8_t protocol = 0;
};

void find_segment(const uint8_t* ip, uint32_t total, Ipv4& out) {
    if ((load_be<uint16_t>(ip + 6) & kFragment) != 0) return;
    const uint32_t room = total - out.header;
    if (out.protocol == kTcp && room >= 20) {
        out.segment = room;
        out.segment_checksum = out.header + 16;
    } else if (out.protocol == kUdp && room >= 8) {
        const uint32_t said = load_be<uint16_t>(ip + out.header + 4);
        out.segment = said >= 8 && said <= room ? said : 0;
        out.segment_checksum = out.header + 6;
    }
}

bool parse(const uint8_t* payload, uint32_t length, Ipv4& out) {
    if (length < kEncapsulation + kLeastHeader || load_be<uint16_t>(payload) != kTypeIpv4) return false;
    const uint8_t* ip = payload + kEncapsulation;
    const uint32_t total = load_be<uint16_t>(ip + 2);
    out.header = (ip[0] & 0xfu) * 4;
    if (ip[0] >> 4 != 4 || out.header < kLeastHeader || total < out.header || total > length - kEncapsulation) return false;
    out.protocol = ip[9];
    find_segment(ip, total, out);
    return true;
}

/// Returns the sum of big-endian 16-bit words without folding. If `length` is odd, pads the last byte with zero.
uint32_t sum(const uint8_t* p, uint32_t length) {
    uint32_t s = 0;
    for (; length >= 2; p += 2, length -= 2) s += load_be<uint16_t>(p);
    return length != 0 ? s + (uint32_t(*p) << 8) : s;
}
uint16_t fold(uint32_t s) {
    s = (s & 0xffff) + (s >> 16);
    return uint16_t((s & 0xffff) + (s >> 16));
}

/// Returns the folded sum of the segment and its pseudo header (both addresses, protocol, length).
uint16_t segment_sum(const uint8_t* ip, const Ipv4& v) {
    return fold(sum(ip + 12, 8) + v.protocol + v.segment + sum(ip + v.header, v.segment));
}

}  // namespace

void fill_header_checksum(uint8_t* ip) { store_be<uint16_t>(ip + kHeaderChecksum, uint16_t(~fold(sum(ip, kLeastHeader)))); }

void fill_ip_checksums(uint8_t* payload, uint32_t length) {
    Ipv4 v;
    if (!parse(payload, length, v)) return;
    uint8_t* ip = payload + kEncapsulation;
    store_be<uint16_t>(ip + kHeaderChecksum, uint16_t{0});
    store_be<uint16_t>(ip + kHeaderChecksum, uint16_t(~fold(sum(ip, v.header))));
    if (v.segment == 0) return;
    store_be<uint16_t>(ip + v.segment_checksum, uint16_t{0});
    const auto checksum = uint16_t(~segment_sum(ip, v));
    // In UDP, a checksum field of 0 means that there is no checksum (RFC 768). So a computed checksum of 0 is sent as 0xffff.
    store_be<uint16_t>(ip + v.segment_checksum, checksum == 0 && v.protocol == kUdp ? uint16_t{0xffff} : checksum);
}

bool ip_checksums_hold(const uint8_t* payload, uint32_t length) {
    constexpr uint16_t kRight = 0xffff;
    Ipv4 v;
    if (!parse(payload, length, v) || v.segment == 0) return false;
    const uint8_t* ip = payload + kEncapsulation;
    if (v.protocol == kUdp && load_be<uint16_t>(ip + v.segment_checksum) == 0) return false;
    return fold(sum(ip, v.header)) == kRight && segment_sum(ip, v) == kRight;
}

}  // namespace roci::wire
