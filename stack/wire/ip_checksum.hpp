// Checksums of IPv4: that of a frame's own header, which a port may compute and check, and those of an IPv4 packet that a UD
// datagram carries.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Result of the port's check of a received frame's IPv4 header.
enum class HeaderChecksum : uint8_t { unknown, right, wrong };

/// Fills in the checksum of an IPv4 header without options. It must be zero before.
void fill_header_checksum(uint8_t* ip);

// The following functions serve the checksum offload of UD QPs. `payload` is an IPv4 packet behind the 4-byte header of IP over
// InfiniBand (RFC 4391, section 6).

/// Fills in the checksum of the IPv4 header and, if the packet is not a fragment, of TCP or UDP. Does not change a payload that
/// is not an IPv4 packet.
void fill_ip_checksums(uint8_t* payload, uint32_t length);
/// True: the payload is an IPv4 packet with TCP or UDP, and both checksums are right.
bool ip_checksums_hold(const uint8_t* payload, uint32_t length);

}  // namespace roci::wire
