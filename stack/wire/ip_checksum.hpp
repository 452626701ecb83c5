// The checksums of an IPv4 packet that a datagram carries behind the 4-byte header of IP over InfiniBand (RFC 4391, section 6):
// what the verbs call checksum offload of UD QPs.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Fills in the checksum of the IPv4 header and, where all of it is in this packet, of TCP or UDP. Whatever is no IPv4 packet
/// stays as it is.
void fill_ip_checksums(uint8_t* payload, uint32_t length);
/// True: it is an IPv4 packet with TCP or UDP in it, and both checksums are right.
bool ip_checksums_hold(const uint8_t* payload, uint32_t length);

}  // namespace roci::wire
