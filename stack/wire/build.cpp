#include "wire/build.hpp"

#include <cstring>

#include "base/bytes.hpp"
#include "wire/icrc.hpp"

namespace roci::wire {
namespace {

constexpr uint16_t kDontFragment = 0x4000;
constexpr uint8_t kBecn = 0x40;

uint32_t sum16(const uint8_t* p, uint32_t length) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < length; i += 2) sum += load_be<uint16_t>(p + i);
    return sum;
}

void put_ipv4(uint8_t* h, const PathSpec& spec) {
    std::memset(h, 0, kIpv4Length);
    h[0] = 0x45;
    h[1] = spec.traffic_class;
    store_be<uint16_t>(h + 6, kDontFragment);  // so identification 0 is permitted (RFC 6864, 4.1)
    h[8] = spec.hop_limit;
    h[9] = kProtocolUdp;
    std::memcpy(h + 12, &spec.source_gid.bytes[12], 4);
    std::memcpy(h + 16, &spec.dest_gid.bytes[12], 4);
}

void put_ipv6(uint8_t* h, const PathSpec& spec) {
    store_be<uint32_t>(h, uint32_t{6} << 28 | uint32_t(spec.traffic_class) << 20 | (spec.flow_label & 0xfffff));
    store_be<uint16_t>(h + 4, uint16_t{0});
    h[6] = kProtocolUdp;
    h[7] = spec.hop_limit;
    std::memcpy(h + 8, spec.source_gid.bytes.data(), 16);
    std::memcpy(h + 24, spec.dest_gid.bytes.data(), 16);
}

/// Writes the lengths and the IPv4 checksum of this frame into the copied template. `datagram` is the UDP length.
inline void patch_lengths(uint8_t* l3, const PathTemplate& path, uint32_t datagram) {
    uint8_t* udp = l3 + (path.ipv6 ? kIpv6Length : kIpv4Length);
    store_be<uint16_t>(udp + 4, uint16_t(datagram));
    if (path.ipv6) {
        store_be<uint16_t>(l3 + 4, uint16_t(datagram));
        return;
    }
    const uint32_t total = datagram + kIpv4Length;
    uint32_t sum = path.ipv4_partial_sum + total;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    store_be<uint16_t>(l3 + 2, uint16_t(total));
    store_be<uint16_t>(l3 + 10, path.left.checksum_offset != 0 ? uint16_t{0} : uint16_t(~sum));
}

inline void put_bth(uint8_t* bth, const TransportHeaders& h, uint32_t pad) {
    store_be<uint32_t>(bth,
                       uint32_t(h.opcode) << 24 | uint32_t(h.solicited) << 23 | uint32_t(h.mig_req) << 22 | pad << 20 | h.pkey);
    store_be<uint32_t>(bth + 4, h.dest_qp.value & kMask24);
    store_be<uint32_t>(bth + 8, uint32_t(h.ack_request) << 31 | h.psn.value());
}

/// Writes the extended headers in wire order, which is the order in which parse() reads them. Returns the start of the payload.
inline uint8_t* put_extended(uint8_t* p, const TransportHeaders& h, uint32_t flags) {
    if ((flags & kXrcEth) != 0) {
        store_be<uint32_t>(p, h.xrc_srqn & kMask24);
        p += 4;
    }
    if ((flags & kDeth) != 0) {
        store_be<uint32_t>(p, h.qkey);
        store_be<uint32_t>(p + 4, h.src_qp.value & kMask24);
        p += 8;
    }
    if ((flags & kFlushEth) != 0) {
        store_be<uint32_t>(p, h.flush);
        p += 4;
    }
    if ((flags & (kReth | kAtomicEth)) != 0) {
        store_be<uint64_t>(p, h.va);
        store_be<uint32_t>(p + 8, h.rkey.value);
        p += 12;
        if ((flags & kReth) != 0) {
            store_be<uint32_t>(p, h.dma_length);
            p += 4;
        } else {
            store_be<uint64_t>(p, h.swap_add);
            store_be<uint64_t>(p + 8, h.compare);
            p += 16;
        }
    }
    if ((flags & kAeth) != 0) {
        store_be<uint32_t>(p, uint32_t(h.syndrome) << 24 | (h.msn.value & kMask24));
        p += 4;
    }
    if ((flags & kAtomicAckEth) != 0) {
        store_be<uint64_t>(p, h.atomic_original);
        p += 8;
    }
    if ((flags & kImmDt) != 0) {
        std::memcpy(p, &h.imm_be, sizeof h.imm_be);
        p += 4;
    }
    if ((flags & kIeth) != 0) {
        store_be<uint32_t>(p, h.invalidate.value);
        p += 4;
    }
    return p;
}

}  // namespace

PathTemplate make_path(const PathSpec& spec) {
    PathTemplate t{};
    if (spec.source_gid.is_ipv4() != spec.dest_gid.is_ipv4()) return t;
    t.ipv6 = !spec.source_gid.is_ipv4();
    uint8_t* p = t.bytes;
    std::memcpy(p, spec.dest_mac.bytes.data(), 6);
    std::memcpy(p + 6, spec.source_mac.bytes.data(), 6);
    p += 12;
    if (spec.vlan != 0) {
        store_be<uint16_t>(p, kEtherVlan);
        store_be<uint16_t>(p + 2, spec.vlan);
        p += kVlanLength;
    }
    store_be<uint16_t>(p, t.ipv6 ? kEtherIpv6 : kEtherIpv4);
    p += 2;
    t.l3_offset = uint8_t(p - t.bytes);
    t.ipv6 ? put_ipv6(p, spec) : put_ipv4(p, spec);
    if (!t.ipv6) t.ipv4_partial_sum = sum16(p, kIpv4Length);
    if (!t.ipv6 && spec.port_sums) t.left.checksum_offset = t.l3_offset;
    t.left.icrc = spec.port_icrc;
    p += t.ipv6 ? kIpv6Length : kIpv4Length;
    store_be<uint16_t>(p, spec.udp_source);
    store_be<uint16_t>(p + 2, kRoceUdpPort);
    store_be<uint32_t>(p + 4, uint32_t{0});  // the length is written per frame; the checksum is 0 (A17.4.2)
    t.length = uint8_t(p + kUdpLength - t.bytes);
    return t;
}

uint8_t* begin_frame(uint8_t* frame, const PathTemplate& path, const TransportHeaders& headers, uint32_t payload_length) {
    const OpcodeInfo& info = opcode_info(headers.opcode);
    const uint32_t pad = -payload_length & 3;
    // A copy of constant size compiles to a few vector stores. The copy may write bytes behind path.length. These bytes are
    // within the room that the caller guarantees.
    std::memcpy(frame, path.bytes, sizeof path.bytes);
    patch_lengths(frame + path.l3_offset, path, kUdpLength + info.header_length + payload_length + pad + kIcrcLength);
    uint8_t* bth = frame + path.length;
    put_bth(bth, headers, pad);
    if (headers.opcode == kCnpOpcode) {  // a CNP has BECN set and sixteen zero bytes (A17.9.3)
        bth[4] |= kBecn;
        std::memset(bth + kBthLength, 0, kCnpReserved);
        return bth + kBthLength + kCnpReserved;
    }
    if (headers.opcode == kLossReportOpcode) [[unlikely]]
        bth[1] = uint8_t(bth[1] | kLossReportVersion);
    return put_extended(bth + kBthLength, headers, info.flags);
}

void keep_headers(RepeatedHeaders& kept, const uint8_t* frame, const PathTemplate& path, const uint8_t* payload) {
    kept.length = uint8_t(payload - frame);
    kept.bth = path.length;
    std::memcpy(kept.bytes, frame, sizeof kept.bytes);
}

uint8_t* repeat_headers(uint8_t* frame, const RepeatedHeaders& kept, Psn psn, bool ack_request) {
    std::memcpy(frame, kept.bytes, sizeof kept.bytes);
    store_be<uint32_t>(frame + kept.bth + 8, uint32_t(ack_request) << 31 | psn.value());
    return frame + kept.length;
}

namespace {

void put_icrc(const uint8_t* l3, uint8_t* end, bool ipv6) {
    const uint32_t crc = icrc(l3, uint32_t(end - l3), ipv6, ipv6 ? kIpv6Length : kIpv4Length);
    std::memcpy(end, &crc, sizeof crc);
}

}  // namespace

uint32_t finish_frame(uint8_t* frame, const PathTemplate& path, uint8_t* payload, uint32_t payload_length) {
    uint8_t* end = payload + payload_length;
    for (uint32_t pad = -payload_length & 3; pad != 0; --pad) *end++ = 0;
    if (!path.left.icrc) put_icrc(frame + path.l3_offset, end, path.ipv6);
    return uint32_t(end - frame) + kIcrcLength;
}

uint32_t finish_frame_from(uint8_t* frame, const PathTemplate& path, uint8_t* payload, const std::byte* from,
                           uint32_t payload_length) {
    uint8_t* end = payload + payload_length;
    if (path.left.icrc) {
        std::memcpy(payload, from, payload_length);
    } else {
        uint8_t* l3 = frame + path.l3_offset;
        const auto* bytes = reinterpret_cast<const uint8_t*>(from);
        const uint32_t crc = icrc_copying(l3, uint32_t(payload - l3), path.ipv6, bytes, payload_length);
        std::memcpy(end, &crc, sizeof crc);
    }
    return uint32_t(end - frame) + kIcrcLength;
}

void write_left(uint8_t* frame, uint32_t length, const LeftToPort& left) {
    if (left.checksum_offset != 0) fill_header_checksum(frame + left.checksum_offset);
    if (!left.icrc) return;
    const bool tagged = load_be<uint16_t>(frame + 12) == kEtherVlan;
    const uint8_t* l3 = frame + kEthLength + (tagged ? kVlanLength : 0);
    put_icrc(l3, frame + length - kIcrcLength, l3[0] >> 4 == 6);
}

}  // namespace roci::wire
