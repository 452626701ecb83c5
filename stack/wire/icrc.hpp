// The invariant CRC of RoCEv2 (IBA 7.8.1; RoCEv2 annex A17.3.3). It is the CRC-32 over 8 bytes of ones, the IP, UDP and BTH
// headers with their variant fields replaced by ones, and the bytes after the BTH. It is sent in little endian order.
#pragma once

#include <cstdint>

namespace roci::wire {

/// Returns the ICRC of the packet whose IP header is at `l3`, over `length` bytes from there up to the ICRC itself.
/// `ip_header_length` is 20 to 60 for IPv4 and 40 for IPv6. The caller has checked that `length` covers at least the IP header,
/// UDP and BTH. The kernel that was chosen at start computes the CRC (crc/kernel.hpp).
uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length);

/// Like icrc(), for a packet that rocid builds, without IP options. The packet's headers are `head_length` bytes at `l3`. The
/// payload is `length` bytes at `from`. Copies the payload behind the headers in the same pass. Each byte is read once, so the
/// ICRC matches the copy.
uint32_t icrc_copying(uint8_t* l3, uint32_t head_length, bool ipv6, const uint8_t* from, uint32_t length);

/// icrc_copying() supports payloads whose length is a multiple of this number: all packets of a long message except possibly the
/// last.
inline constexpr uint32_t kCopyingStep = 256;

}  // namespace roci::wire
