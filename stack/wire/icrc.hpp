// The invariant CRC of RoCEv2: CRC-32 over 8 bytes of ones, the IP, UDP and BTH headers with their variant fields masked by ones,
// and the rest (IBA 7.8.1; RoCEv2 annex A17.3.3). Sent little endian.
#pragma once

#include <cstdint>

namespace roci::wire {

/// ICRC of the packet whose IP header is at `l3`, over `length` bytes from there (up to, not including, the ICRC itself).
/// `ip_header_length` 20..60 for IPv4, 40 for IPv6. Computed by the kernel that was chosen at start (crc/kernel.hpp).
/// The caller has checked that `length` covers at least IP header, UDP and BTH. Stored on the wire with its low byte first.
uint32_t icrc(const uint8_t* l3, uint32_t length, bool ipv6, uint32_t ip_header_length);

/// The same for a packet that rocid builds, without IP options: its headers are `head_length` bytes at `l3`, and its last
/// `length` bytes are at `from`. Copies these behind the headers in the same pass. Each byte is read once, so the ICRC matches
/// the copy.
uint32_t icrc_copying(uint8_t* l3, uint32_t head_length, bool ipv6, const uint8_t* from, uint32_t length);

/// icrc_copying() supports payloads of a multiple of this: those of all packets of a long message except, perhaps, the last.
inline constexpr uint32_t kCopyingStep = 256;

}  // namespace roci::wire
