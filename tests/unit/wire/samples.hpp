// Frames for the wire tests: paths of every kind, headers with a distinct value in every field, and the conversion of a parsed
// packet to the arguments of begin_frame.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.hpp"
#include "wire/build.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"

namespace roci::test {

using Frame = std::vector<uint8_t>;

inline wire::PathSpec sample_path(bool ipv6, bool tagged) {
    wire::PathSpec s;
    s.source_mac = {{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}};
    s.dest_mac = {{0x02, 0x66, 0x77, 0x88, 0x99, 0xaa}};
    if (ipv6) {
        for (uint8_t i = 0; i < 16; ++i) {
            s.source_gid.bytes[i] = uint8_t(0x20 + i);
            s.dest_gid.bytes[i] = uint8_t(0xf0 - i);
        }
    } else {
        constexpr uint8_t from[4] = {10, 1, 2, 3}, to[4] = {192, 168, 250, 251};
        s.source_gid = Gid::from_ipv4(from);
        s.dest_gid = Gid::from_ipv4(to);
    }
    s.traffic_class = 0x6a;  // DSCP 26, ECT(0)
    s.hop_limit = 61;
    s.flow_label = 0xabcde;
    s.udp_source = 0xd1e2;
    s.vlan = tagged ? 0xa123 : 0;
    return s;
}

/// Sets every field of every header, so that a field in a wrong place is detected.
inline wire::TransportHeaders sample_headers(uint8_t opcode) {
    wire::TransportHeaders h;
    h.opcode = opcode;
    h.solicited = (opcode & 1) != 0;
    h.ack_request = (opcode & 2) != 0;
    h.mig_req = (opcode & 4) == 0;
    h.pkey = 0x8a5b;
    h.dest_qp = Qpn{0xc0ffee};
    h.psn = Psn(0xfedcba);
    h.va = 0x0123456789abcdef;
    h.rkey = Key{0xdeadbeef};
    h.dma_length = 0x7a6b5c4d;
    h.swap_add = 0x1122334455667788;
    h.compare = 0x99aabbccddeeff00;
    h.syndrome = 0x62;
    h.msn = Msn{0x13579b};
    h.atomic_original = 0xfeedfacecafebabe;
    h.imm_be = 0x04030201;
    h.invalidate = Key{0x0badf00d};
    h.qkey = 0x80010000;
    h.src_qp = Qpn{0xabc123};
    h.xrc_srqn = 0x654321;
    h.flush = 0x21;
    return h;
}

/// Returns the arguments of begin_frame that result in this packet.
inline wire::TransportHeaders headers_of(const wire::Packet& p) {
    wire::TransportHeaders h;
    h.opcode = p.opcode;
    h.solicited = p.solicited;
    h.ack_request = p.ack_request;
    h.mig_req = p.mig_req;
    h.pkey = p.pkey;
    h.dest_qp = p.dest_qp;
    h.psn = p.psn;
    h.va = p.va;
    h.rkey = p.rkey;
    h.dma_length = p.dma_length;
    h.swap_add = p.swap_add;
    h.compare = p.compare;
    h.syndrome = p.syndrome;
    h.msn = p.msn;
    h.atomic_original = p.atomic_original;
    h.imm_be = p.imm_be;
    h.invalidate = p.invalidate;
    h.qkey = p.qkey;
    h.src_qp = p.src_qp;
    h.xrc_srqn = p.xrc_srqn;
    h.flush = p.flush;
    return h;
}

/// Returns the path of a packet, read from its frame.
inline wire::PathSpec path_of(const wire::Packet& p) {
    wire::PathSpec s;
    std::memcpy(s.dest_mac.bytes.data(), p.frame, 6);
    std::memcpy(s.source_mac.bytes.data(), p.frame + 6, 6);
    if (p.l3 - p.frame == wire::kEthLength + wire::kVlanLength) s.vlan = load_be<uint16_t>(p.frame + 14);
    s.source_gid = p.source_gid();
    s.dest_gid = p.dest_gid();
    s.traffic_class = p.ipv6 ? uint8_t(load_be<uint16_t>(p.l3) >> 4) : p.l3[1];
    s.hop_limit = p.ipv6 ? p.l3[7] : p.l3[8];
    s.flow_label = p.ipv6 ? load_be<uint32_t>(p.l3) & 0xfffff : 0;
    s.udp_source = p.udp_source;
    return s;
}

/// Returns a whole frame. The buffer first has exactly the size that begin_frame may use, and is then cut to the frame's length.
inline Frame build_frame(const wire::PathSpec& spec, const wire::TransportHeaders& headers, const uint8_t* payload,
                         uint32_t length) {
    const wire::PathTemplate path = wire::make_path(spec);
    Frame frame(wire::kMaxOverhead + length, 0xee);
    uint8_t* at = wire::begin_frame(frame.data(), path, headers, length);
    if (length != 0) std::memcpy(at, payload, length);
    frame.resize(wire::finish_frame(frame.data(), path, at, length));
    return frame;
}

inline std::vector<uint8_t> sample_payload(uint32_t length) {
    std::vector<uint8_t> p(length);
    for (uint32_t i = 0; i < length; ++i) p[i] = uint8_t(i * 7 + 1);
    return p;
}

inline Frame sample_frame(uint8_t opcode, bool ipv6 = false, bool tagged = false, uint32_t length = 0) {
    return build_frame(sample_path(ipv6, tagged), sample_headers(opcode), sample_payload(length).data(), length);
}

/// The offsets within a frame with a plain IP header.
struct Offsets {
    uint32_t l3, udp, bth;
    Offsets(bool ipv6, bool tagged)
        : l3(wire::kEthLength + (tagged ? wire::kVlanLength : 0)),
          udp(l3 + (ipv6 ? wire::kIpv6Length : wire::kIpv4Length)),
          bth(udp + wire::kUdpLength) {}
};

/// Corrects the IPv4 header checksum, computed as in RFC 1071.
inline void repair_ipv4_checksum(uint8_t* l3) {
    store_be<uint16_t>(l3 + 10, uint16_t{0});
    uint32_t sum = 0;
    for (uint32_t i = 0; i < uint32_t(l3[0] & 15) * 4; i += 2) sum += load_be<uint16_t>(l3 + i);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    store_be<uint16_t>(l3 + 10, uint16_t(~sum));
}

/// Corrects the ICRC at the end of the frame. Trusts `ip_header_length`.
inline void repair_icrc(Frame& frame, uint32_t l3, bool ipv6, uint32_t ip_header_length) {
    const auto length = uint32_t(frame.size() - l3 - wire::kIcrcLength);
    const uint32_t crc = wire::icrc(&frame[l3], length, ipv6, ip_header_length);
    std::memcpy(&frame[frame.size() - wire::kIcrcLength], &crc, sizeof crc);
}

}  // namespace roci::test
