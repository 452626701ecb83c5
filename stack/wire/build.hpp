// Builds a frame in three steps. begin_frame() copies the path's template of Ethernet, IP and UDP headers, and adds the BTH and
// extended headers. The caller writes the payload. finish_frame() adds padding and the ICRC.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"

namespace roci::wire {

/// Contents of the headers before the BTH.
struct PathSpec {
    MacAddress source_mac, dest_mac;
    Gid source_gid, dest_gid;   ///< either both IPv4-mapped or both IPv6
    uint8_t traffic_class = 0;  ///< DSCP and ECN
    uint8_t hop_limit = 64;
    uint32_t flow_label = 0;
    uint16_t udp_source = 0xc000;  ///< 0xc000..0xffff, one per flow (A17.4.6); 4791 on a port that is a UDP socket
    uint16_t vlan = 0;             ///< tag control information (802.1Q), 0 if untagged
    bool port_sums = false;        ///< the port computes the checksums of IPv4 headers
    bool port_icrc = false;        ///< the engine computes no ICRC: the port does (simulator), or no frame needs one (loopback)
};

/// The checksums that begin_frame() and finish_frame() leave to the port.
struct LeftToPort {
    uint8_t checksum_offset = 0;  ///< offset of the IPv4 header whose checksum is zero; 0: no such checksum is left
    bool icrc = false;            ///< the last four bytes of the frame are not written
    bool any() const { return checksum_offset != 0 || icrc; }
};
/// Writes the checksums that were left to the port. Code that changes a frame, or hands the frame to a receiver that needs these
/// checksums, must call this function first.
void write_left(uint8_t* frame, uint32_t length, const LeftToPort& left);

/// The headers before the BTH. begin_frame() copies these headers and writes the frame's lengths and IPv4 checksum.
struct PathTemplate {
    uint8_t length = 0;  ///< 0 if there is no path
    uint8_t l3_offset = 0;
    bool ipv6 = false;
    LeftToPort left;
    uint32_t ipv4_partial_sum = 0;  ///< sum of the IPv4 header's 16-bit words without the total length
    uint8_t bytes[kEthLength + kVlanLength + kIpv6Length + kUdpLength];
};
/// Returns the template. If exactly one of the GIDs is IPv4-mapped, no path exists, and the template has length 0.
PathTemplate make_path(const PathSpec& spec);

/// The headers after the UDP header. The opcode selects the extended headers (opcode_info) and so the fields that are used.
struct TransportHeaders {
    uint8_t opcode = 0;
    bool solicited = false, ack_request = false, mig_req = true;
    uint16_t pkey = 0xffff;
    Qpn dest_qp;
    Psn psn;
    uint64_t va = 0;  // RETH, AtomicETH
    Key rkey;
    uint32_t dma_length = 0;
    uint64_t swap_add = 0, compare = 0;
    uint8_t syndrome = 0;  // AETH
    Msn msn;
    uint64_t atomic_original = 0;
    uint32_t imm_be = 0;  // ImmDt
    Key invalidate;       // IETH
    uint32_t qkey = 0;    // DETH
    Qpn src_qp;
    uint32_t xrc_srqn = 0;  // XRCETH
    uint32_t flush = 0;     // FETH
};

/// Writes all headers for a frame with `payload_length` bytes of payload. Returns the start of the payload. `frame` must have
/// room for kMaxOverhead + payload_length bytes.
uint8_t* begin_frame(uint8_t* frame, const PathTemplate& path, const TransportHeaders& headers, uint32_t payload_length);

/// Returns the number of bytes before the payload of a frame with that opcode.
inline uint32_t header_bytes(const PathTemplate& path, uint8_t opcode) { return path.length + opcode_info(opcode).header_length; }

/// Headers of a Middle packet. The headers of all Middle packets of a message differ only in PSN and ACK request.
struct RepeatedHeaders {
    uint8_t length = 0, bth = 0;
    uint8_t bytes[sizeof(PathTemplate::bytes) + kBthLength + 4];  ///< a Middle packet has at most an XRCETH after the BTH
};
/// Stores the headers that begin_frame() wrote for a Middle packet.
void keep_headers(RepeatedHeaders& kept, const uint8_t* frame, const PathTemplate& path, const uint8_t* payload);
/// Like begin_frame(), but copies the stored headers. The payload must be as long as the payload of the stored packet.
uint8_t* repeat_headers(uint8_t* frame, const RepeatedHeaders& kept, Psn psn, bool ack_request);

/// Adds padding and, unless LeftToPort::icrc is set, the ICRC. Before the call, the payload must be at the address that
/// begin_frame() returned. Returns the length of the frame.
uint32_t finish_frame(uint8_t* frame, const PathTemplate& path, uint8_t* payload, uint32_t payload_length);

/// Returns true if finish_frame_from() supports a payload of `payload_length` bytes.
constexpr bool copies_with_icrc(uint32_t payload_length) { return payload_length != 0 && payload_length % kCopyingStep == 0; }

/// Like finish_frame(), but reads the payload at `from` and copies it in the pass that computes the ICRC.
uint32_t finish_frame_from(uint8_t* frame, const PathTemplate& path, uint8_t* payload, const std::byte* from,
                           uint32_t payload_length);

}  // namespace roci::wire
