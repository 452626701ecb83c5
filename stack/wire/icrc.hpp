// The invariant CRC (ICRC) of RoCEv2 (IBA 7.8.1; RoCEv2 annex A17.3.3). The ICRC is the CRC-32 over 8 bytes of ones, the IP, UDP
// and BTH headers, and the bytes after the BTH. The variant fields of the headers are replaced by ones. The ICRC is sent in
// little endian order.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Returns the ICRC of a packet. The ICRC covers the `length` bytes from the IP header at `l3` to the byte before the ICRC field.
/// `ip_header_length` is 20 to 60 for IPv4 and 40 for IPv6. The caller has checked that `length` covers at least the IP header,
/// the UDP header and the BTH. The CRC kernel that was chosen at start computes the CRC (crc/kernel.hpp).
uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length);

/// Returns the ICRC of a packet without IP options, and copies the payload in the same pass. The packet's headers are the
/// `head_length` bytes at `l3`. The payload is the `length` bytes at `from`, which the function copies behind the headers. The
/// function reads each byte at `from` once, so the ICRC matches the copy.
uint32_t icrc_copying(uint8_t* l3, uint32_t head_length, bool ipv6, const uint8_t* from, uint32_t length);

/// icrc_copying() supports payloads whose length is a multiple of this number. In a long message, only the payload of the last
/// packet may have another length.
inline constexpr uint32_t kCopyingStep = 256;

}  // namespace roci::wire
