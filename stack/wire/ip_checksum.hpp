// Checksums of IPv4. Some functions handle a frame's own IPv4 header, whose checksum a port may compute and check. The others
// handle an IPv4 packet within a UD datagram.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Result of the port's check of a received frame's IPv4 header checksum, or of its ICRC.
enum class HeaderChecksum : uint8_t { unknown, right, wrong };

/// Fills in the checksum of an IPv4 header without options. The checksum field must be zero before.
void fill_header_checksum(uint8_t* ip);

// The following functions serve the checksum offload of UD QPs. `payload` is an IPv4 packet behind the 4-byte header of IP over
// InfiniBand (RFC 4391, section 6).

/// Fills in the checksum of the IPv4 header. If the packet is not a fragment, also fills in the checksum of TCP or UDP. Does not
/// change a payload that is not an IPv4 packet.
void fill_ip_checksums(uint8_t* payload, uint32_t length);
/// Returns true if the payload is an IPv4 packet with TCP or UDP and both checksums are right.
bool ip_checksums_hold(const uint8_t* payload, uint32_t length);

}  // namespace roci::wire
