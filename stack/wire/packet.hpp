// Parses a received frame into a Packet. If parse() returns ok, all lengths match the opcode, so every access to the Packet is
// safe. parse() verifies the ICRC unless the caller turns the check off.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/types.hpp"
#include "wire/ip_checksum.hpp"
#include "wire/opcode.hpp"

namespace roci::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;
inline constexpr uint32_t kEthLength = 14, kVlanLength = 4, kIpv4Length = 20, kIpv6Length = 40, kUdpLength = 8, kBthLength = 12;
inline constexpr uint32_t kIcrcLength = 4;
inline constexpr uint32_t kCnpReserved = 16;  ///< zero bytes after the BTH of a CNP; part of the header (A17.9.3)
inline constexpr uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherVlan = 0x8100;
inline constexpr uint8_t kProtocolUdp = 17;
/// Upper bound of the headers and trailer around a payload, in bytes: Ethernet, VLAN, IPv6, UDP, BTH, XRCETH, AtomicETH (the
/// longest extended header), ImmDt, pad and ICRC.
inline constexpr uint32_t kMaxOverhead =
    kEthLength + kVlanLength + kIpv6Length + kUdpLength + kBthLength + 4 + 28 + 4 + 3 + kIcrcLength;
inline constexpr uint32_t kMaxFrame = 4096 + kMaxOverhead;

/// Results of parse(). Each reason to refuse a frame has a counter. verdict_name() returns the name of a value.
enum class Verdict : uint8_t {
    ok,
    not_roce,       ///< not UDP over IP with destination port 4791
    truncated,      ///< shorter than its headers, or than its IP or UDP length
    bad_ip_header,  ///< invalid version, header length or total length
    bad_ip_checksum,
    ip_fragment,  ///< RoCEv2 forbids fragments (A17.4.5.1)
    bad_udp_length,
    bad_bth_version,  ///< a TVer that the opcode does not have; such a packet is silently dropped (IBA 9.2.2)
    unknown_opcode,
    short_for_opcode,    ///< too short for the opcode's extended headers
    bad_pad,             ///< pad count larger than the payload, or length not a multiple of 4
    unexpected_payload,  ///< payload with an opcode that permits none
    bad_icrc,
    count_,
};
const char* verdict_name(Verdict v);

/// The headers in host byte order. The fields of an extended header are valid only if the opcode has that header (info->flags).
struct Packet {
    const OpcodeInfo* info = nullptr;
    const uint8_t* frame = nullptr;  ///< Ethernet header
    const uint8_t* l3 = nullptr;     ///< IPv4 or IPv6 header
    const uint8_t* payload = nullptr;
    uint32_t payload_length = 0;  ///< without padding
    bool ipv6 = false;
    uint8_t opcode = 0;
    bool solicited = false, mig_req = false, ack_request = false;
    bool fecn = false, becn = false;
    bool unchecked = false;  ///< the ICRC has not been checked
    uint8_t ecn = 0;         ///< ECN bits of the IP header
    uint16_t pkey = 0;
    uint16_t udp_source = 0;
    Qpn dest_qp;
    Psn psn;
    // RETH, AtomicETH
    uint64_t va = 0;
    Key rkey;
    uint32_t dma_length = 0;
    uint64_t swap_add = 0, compare = 0;
    // AETH, AtomicAckETH
    uint8_t syndrome = 0;
    Msn msn;
    uint64_t atomic_original = 0;
    // ImmDt: immediate data in wire order (big endian). IETH: the rkey to invalidate
    uint32_t imm_be = 0;
    Key invalidate;
    // DETH, XRCETH
    uint32_t qkey = 0;
    Qpn src_qp;
    uint32_t xrc_srqn = 0;
    uint32_t flush = 0;  ///< FETH: placement type in bits 3..0, selectivity in 5..4

    /// source_gid() and dest_gid() return the IP addresses as GIDs. IPv4 addresses are IPv4-mapped.
    Gid source_gid() const;
    Gid dest_gid() const;
    /// Writes the 40 bytes that precede the payload in the receive buffer of a UD QP (A17.4.5.2). For IPv4, these bytes are 20
    /// zero bytes and the IPv4 header. For IPv6, these bytes are the IPv6 header.
    void copy_grh(uint8_t out[40]) const;
};

/// Returns the VLAN ID of a frame's tag (802.1Q). Returns 0 if the frame has no tag, or if the tag contains only a priority.
/// `frame` must contain an Ethernet header and four more bytes.
inline uint16_t vlan_id(const uint8_t* frame) {
    return load_be<uint16_t>(frame + 12) == kEtherVlan ? load_be<uint16_t>(frame + 14) & 0xfff : 0;
}

/// Parses one Ethernet frame of `length` bytes. The frame may have Ethernet padding. If parse() returns ok, `out` points into the
/// frame. If `check_icrc` is false, parse() does not compute the ICRC. `ip` and `icrc` are the results of checks that the port
/// has made. parse() itself makes each check whose result is unknown. Sets Packet::unchecked if nobody has checked the ICRC.
Verdict parse(const uint8_t* frame, uint32_t length, Packet& out, bool check_icrc = true,
              HeaderChecksum ip = HeaderChecksum::unknown, HeaderChecksum icrc = HeaderChecksum::unknown);

/// Returns true if the ICRC of a packet is right. parse() must have returned ok for this packet.
bool icrc_right(const Packet& p);
/// Returns the number of bytes of the packet's frame from the Ethernet header to the ICRC.
uint32_t frame_bytes(const Packet& p);

}  // namespace roci::wire
