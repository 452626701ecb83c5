// For a NIC that only rocid uses (port = "pci"): parses the PCI address, and checks the NIC before DPDK opens the NIC.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace roci::rocid {

/// Converts a PCI address such as "3:0.1" or "0000:03:00.1" to the form "0000:03:00.1". Returns nullopt if the text is no PCI
/// address.
std::optional<std::string> canonical_pci(std::string_view text);

/// Returns one line with the reason why DPDK cannot open the NIC and with a remedy. Returns "" if the checks find no obstacle.
/// `root` is a prefix of /sys and /dev, for tests.
std::string nic_trouble(const std::string& address, const std::string& root = "");

/// The NICs of a configuration that DPDK cannot open. Maps the PCI address to the result of nic_trouble().
using NicTroubles = std::map<std::string, std::string>;

}  // namespace roci::rocid
