// IPv4, TCP and UDP checksums. fill_header_checksum() writes the checksum of a frame's own IPv4 header. The other functions
// process an IPv4 packet in the payload of a UD datagram.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Result of the port's check of the IPv4 header checksum or of the ICRC of a received frame. `absent` is a value for the ICRC
/// only: the frame contains no ICRC, because the frame has never left the memory of this process.
enum class HeaderChecksum : uint8_t { unknown, right, wrong, absent };

/// Writes the checksum of an IPv4 header without options. Before the call, the checksum field must be zero.
void fill_header_checksum(uint8_t* ip);

// The following functions serve the checksum offload of UD QPs. `payload` is an IPv4 packet behind the 4-byte header of IP over
// InfiniBand (RFC 4391, section 6).

/// Writes the checksum of the IPv4 header. If the packet is not a fragment, also writes the checksum of TCP or UDP. Does not
/// change a payload that is not an IPv4 packet.
void fill_ip_checksums(uint8_t* payload, uint32_t length);
/// Returns true if the payload is an IPv4 packet with TCP or UDP and both checksums are right.
bool ip_checksums_hold(const uint8_t* payload, uint32_t length);

}  // namespace roci::wire
