#include "wire/packet.hpp"

#include <cstring>

#include "base/bytes.hpp"
#include "base/stage.hpp"
#include "wire/icrc.hpp"

namespace roci::wire {
namespace {

constexpr uint16_t kFragmentBits = 0x3fff;  // mask of the more-fragments bit and the fragment offset

/// The IP packet in a frame. check_ipv4() or check_ipv6() has checked that the frame contains the whole packet.
struct IpPacket {
    const uint8_t* header = nullptr;
    uint32_t header_length = 0;
    uint32_t payload_length = 0;  ///< length of the UDP header and the bytes after it
    bool ipv6 = false;
    uint8_t ecn = 0;
};

/// Returns true if the sum of the IPv4 header is all ones (RFC 1071). The byte order of the addends does not matter.
inline bool ipv4_checksum_good(const uint8_t* h, uint32_t header_length) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < header_length; i += 4) {
        uint32_t word;
        std::memcpy(&word, h + i, sizeof word);
        sum += word;
    }
    // The sum is below 2^36, so the result of two folds is at most 0x1000f. If this result is not 0xffff, a third fold would not
    // yield 0xffff either.
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

inline bool to_roce_port(const uint8_t* udp) { return load_be<uint16_t>(udp + 2) == kRoceUdpPort; }

inline bool checksum_good(const uint8_t* h, uint32_t header_length, HeaderChecksum said) {
    return said == HeaderChecksum::unknown ? ipv4_checksum_good(h, header_length) : said == HeaderChecksum::right;
}

inline Verdict check_ipv4(const uint8_t* h, uint32_t available, HeaderChecksum said, IpPacket& ip) {
    if (available < kIpv4Length) return Verdict::truncated;
    const uint32_t header_length = uint32_t(h[0] & 0x0f) * 4;
    if (h[0] >> 4 != 4 || header_length < kIpv4Length) return Verdict::bad_ip_header;
    if (h[9] != kProtocolUdp) return Verdict::not_roce;
    // Tests for a fragment before the UDP port, because only the first fragment has a UDP header.
    if ((load_be<uint16_t>(h + 6) & kFragmentBits) != 0) return Verdict::ip_fragment;
    if (available < header_length + kUdpLength) return Verdict::truncated;
    if (!to_roce_port(h + header_length)) return Verdict::not_roce;
    const uint32_t total = load_be<uint16_t>(h + 2);
    if (total < header_length + kUdpLength) return Verdict::bad_ip_header;
    if (total > available) return Verdict::truncated;
    if (!checksum_good(h, header_length, said)) return Verdict::bad_ip_checksum;
    ip = {h, header_length, total - header_length, false, uint8_t(h[1] & 3)};
    return Verdict::ok;
}

inline Verdict check_ipv6(const uint8_t* h, uint32_t available, IpPacket& ip) {
    if (available < kIpv6Length) return Verdict::truncated;
    if (h[0] >> 4 != 6) return Verdict::bad_ip_header;
    // RoCEv2 has no extension headers (A17.3.1), so the UDP header must follow the IPv6 header. Fragments have a separate
    // verdict.
    constexpr uint8_t kFragmentHeader = 44;
    if (h[6] == kFragmentHeader) return Verdict::ip_fragment;
    if (h[6] != kProtocolUdp) return Verdict::not_roce;
    if (available < kIpv6Length + kUdpLength) return Verdict::truncated;
    if (!to_roce_port(h + kIpv6Length)) return Verdict::not_roce;
    const uint32_t payload = load_be<uint16_t>(h + 4);
    if (payload < kUdpLength) return Verdict::bad_ip_header;
    if (payload > available - kIpv6Length) return Verdict::truncated;
    ip = {h, kIpv6Length, payload, true, uint8_t(h[1] >> 4 & 3)};
    return Verdict::ok;
}

inline Verdict check_l3(const uint8_t* frame, uint32_t length, HeaderChecksum said, IpPacket& ip) {
    if (length < kEthLength) return Verdict::truncated;
    uint32_t offset = kEthLength;
    uint16_t type = load_be<uint16_t>(frame + 12);
    if (type == kEtherVlan) {
        offset += kVlanLength;
        if (length < offset) return Verdict::truncated;
        type = load_be<uint16_t>(frame + 16);
    }
    if (type == kEtherIpv4) return check_ipv4(frame + offset, length - offset, said, ip);
    if (type == kEtherIpv6) return check_ipv6(frame + offset, length - offset, ip);
    return Verdict::not_roce;
}

/// Returns true if the ICRC behind the first `covered` bytes of an IP packet is right.
inline bool icrc_matches(const uint8_t* l3, uint32_t covered, bool ipv6, uint32_t ip_header_length) {
    uint32_t wire;
    std::memcpy(&wire, l3 + covered, sizeof wire);
    return wire == icrc(l3, covered, ipv6, ip_header_length);
}

/// Returns the position of a packet's ICRC. parse() has checked that payload and padding are a multiple of 4 bytes long.
inline const uint8_t* icrc_of(const Packet& p) { return p.payload + (p.payload_length + 3) / 4 * 4; }

inline void read_bth(const uint8_t* bth, Packet& out) {
    const uint32_t partition = load_be<uint32_t>(bth);
    const uint32_t destination = load_be<uint32_t>(bth + 4);
    const uint32_t sequence = load_be<uint32_t>(bth + 8);
    out.solicited = (partition >> 23 & 1) != 0;
    out.mig_req = (partition >> 22 & 1) != 0;
    out.pkey = uint16_t(partition);
    out.fecn = (destination >> 31) != 0;
    out.becn = (destination >> 30 & 1) != 0;
    out.dest_qp = Qpn{destination & kMask24};
    out.ack_request = (sequence >> 31) != 0;
    out.psn = Psn(sequence);
}

/// Reads the extended headers in wire order (IBA 9.2, table 38; annex A14). The caller has checked that the frame contains them.
inline void read_extended(const uint8_t* p, uint32_t flags, Packet& out) {
    constexpr uint32_t any = kXrcEth | kDeth | kFlushEth | kReth | kAtomicEth | kAeth | kAtomicAckEth | kImmDt | kIeth;
    if ((flags & any) == 0) return;
    if ((flags & kXrcEth) != 0) {
        out.xrc_srqn = load_be24(p + 1);
        p += 4;
    }
    if ((flags & kDeth) != 0) {
        out.qkey = load_be<uint32_t>(p);
        out.src_qp = Qpn{load_be24(p + 5)};
        p += 8;
    }
    if ((flags & kFlushEth) != 0) {
        out.flush = load_be<uint32_t>(p);
        p += 4;
    }
    if ((flags & (kReth | kAtomicEth)) != 0) {
        out.va = load_be<uint64_t>(p);
        out.rkey = Key{load_be<uint32_t>(p + 8)};
        p += 12;
        if ((flags & kReth) != 0) {
            out.dma_length = load_be<uint32_t>(p);
            p += 4;
        } else {
            out.swap_add = load_be<uint64_t>(p);
            out.compare = load_be<uint64_t>(p + 8);
            p += 16;
        }
    }
    if ((flags & kAeth) != 0) {
        const uint32_t aeth = load_be<uint32_t>(p);
        out.syndrome = uint8_t(aeth >> 24);
        out.msn = Msn{aeth & kMask24};
        p += 4;
    }
    if ((flags & kAtomicAckEth) != 0) {
        out.atomic_original = load_be<uint64_t>(p);
        p += 8;
    }
    if ((flags & kImmDt) != 0) std::memcpy(&out.imm_be, p, sizeof out.imm_be);
    if ((flags & kIeth) != 0) out.invalidate = Key{load_be<uint32_t>(p)};
}

constexpr const char* kVerdictNames[] = {
    "ok",          "not_roce",           "truncated",       "bad_ip_header",  "bad_ip_checksum",
    "ip_fragment", "bad_udp_length",     "bad_bth_version", "unknown_opcode", "short_for_opcode",
    "bad_pad",     "unexpected_payload", "bad_icrc"};
static_assert(sizeof kVerdictNames / sizeof kVerdictNames[0] == size_t(Verdict::count_));

Gid gid_at(const uint8_t* address, bool ipv6) {
    if (!ipv6) return Gid::from_ipv4(address);
    Gid g;
    std::memcpy(g.bytes.data(), address, g.bytes.size());
    return g;
}

}  // namespace

const char* verdict_name(Verdict v) { return v < Verdict::count_ ? kVerdictNames[size_t(v)] : "invalid"; }

Gid Packet::source_gid() const { return gid_at(ipv6 ? l3 + 8 : l3 + 12, ipv6); }
Gid Packet::dest_gid() const { return gid_at(ipv6 ? l3 + 24 : l3 + 16, ipv6); }

void Packet::copy_grh(uint8_t out[40]) const {
    if (ipv6) {
        std::memcpy(out, l3, kIpv6Length);
        return;
    }
    std::memset(out, 0, 20);
    std::memcpy(out + 20, l3, kIpv4Length);
}

Verdict parse(const uint8_t* frame, uint32_t length, Packet& out, bool check_icrc, HeaderChecksum said,
              HeaderChecksum icrc_said) {
    ROCI_STAGE(parse);
    IpPacket ip;
    if (const Verdict v = check_l3(frame, length, said, ip); v != Verdict::ok) return v;
    const uint8_t* udp = ip.header + ip.header_length;
    if (load_be<uint16_t>(udp + 4) != ip.payload_length) return Verdict::bad_udp_length;
    if (ip.payload_length < kUdpLength + kBthLength + kIcrcLength) return Verdict::truncated;

    // All lengths are uint32_t, and a comparison precedes each subtraction. So no subtraction can wrap around.
    const uint8_t* bth = udp + kUdpLength;
    const uint32_t room = ip.payload_length - kUdpLength - kIcrcLength;  // bytes from the BTH to the end of the padding
    const uint8_t opcode = bth[0];
    const uint8_t second = bth[1];
    if ((second & 0x0f) != (opcode == kLossReportOpcode ? kLossReportVersion : 0)) return Verdict::bad_bth_version;
    const OpcodeInfo& info = opcode_info(opcode);
    if (!info.valid()) return Verdict::unknown_opcode;
    if (room < info.header_length) return Verdict::short_for_opcode;
    const uint32_t padded = room - info.header_length;
    const uint32_t pad = second >> 4 & 3;
    if (pad > padded || padded % 4 != 0) return Verdict::bad_pad;  // payload plus padding is a multiple of 4 (IBA 9.2.4)
    if (padded != pad && !info.has(kPayload)) return Verdict::unexpected_payload;
    if (icrc_said == HeaderChecksum::wrong) return Verdict::bad_icrc;
    const bool unknown = icrc_said == HeaderChecksum::unknown;
    const uint32_t covered = ip.header_length + ip.payload_length - kIcrcLength;
    if (check_icrc && unknown && !icrc_matches(ip.header, covered, ip.ipv6, ip.header_length)) return Verdict::bad_icrc;

    out.info = &info;
    out.unchecked = unknown && !check_icrc;
    out.frame = frame;
    out.l3 = ip.header;
    out.payload = bth + info.header_length;
    out.payload_length = padded - pad;
    out.ipv6 = ip.ipv6;
    out.opcode = opcode;
    out.ecn = ip.ecn;
    out.udp_source = load_be<uint16_t>(udp);
    read_bth(bth, out);
    read_extended(bth + kBthLength, info.flags, out);
    return Verdict::ok;
}

bool icrc_right(const Packet& p) {
    const uint8_t* udp = p.payload - p.info->header_length - kUdpLength;
    return icrc_matches(p.l3, uint32_t(icrc_of(p) - p.l3), p.ipv6, uint32_t(udp - p.l3));
}

uint32_t frame_bytes(const Packet& p) { return uint32_t(icrc_of(p) - p.frame) + kIcrcLength; }

}  // namespace roci::wire
