// Parses and formats MAC addresses, IP addresses and GIDs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace roci::rocid {

/// Parses a MAC address such as "02:52:4f:43:49:00".
std::optional<MacAddress> parse_mac(const std::string& text);
std::string mac_text(const MacAddress& mac);
/// Parses an IP address such as "10.77.0.1/24" or "fd77::1". Returns an IPv4 address as an IPv4-mapped GID. The text may have a
/// prefix length. The result does not contain the prefix length.
std::optional<Gid> parse_address(const std::string& text);
/// Parses a neighbour such as "10.77.0.2=02:00:00:00:00:02".
std::optional<std::pair<Gid, MacAddress>> parse_neighbour(const std::string& text);
/// Returns the prefix length of an address text as a number of GID bits: for IPv4, the prefix length plus 96. Returns 128 if the
/// text has no prefix length.
uint8_t prefix_of(const std::string& text);
std::string gid_text(const Gid& gid);
/// Returns GID 0 of a RoCE port: the link-local address (fe80::/64) with the modified EUI-64 of the MAC (RFC 4291 appendix A).
Gid link_local(const MacAddress& mac);

}  // namespace roci::rocid
