// Checksums of IPv4: that of a frame's own header, which a port may make and check by itself, and those of a packet that a
// datagram carries.
#pragma once

#include <cstdint>

namespace roci::wire {

/// What is known of the checksum of a received frame's IPv4 header, before anybody has looked at the bytes.
enum class HeaderChecksum : uint8_t { unknown, right, wrong };

/// Fills in the checksum, zero as yet, of an IPv4 header without options.
void fill_header_checksum(uint8_t* ip);

// Of an IPv4 packet behind the 4-byte header of IP over InfiniBand (RFC 4391, section 6): what the verbs call checksum offload of
// UD QPs.

/// Fills in the checksum of the IPv4 header and, where all of it is in this packet, of TCP or UDP. Whatever is no IPv4 packet
/// stays as it is.
void fill_ip_checksums(uint8_t* payload, uint32_t length);
/// True: it is an IPv4 packet with TCP or UDP in it, and both checksums are right.
bool ip_checksums_hold(const uint8_t* payload, uint32_t length);

}  // namespace roci::wire
