// A NIC of its own (port = "pci"): its address, and the checks of this machine that are made
// before DPDK opens it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace roci::rocid {

/// "3:0.1" and "0000:03:00.1" are "0000:03:00.1"; nothing if it is no PCI address.
std::optional<std::string> canonical_pci(std::string_view text);

/// Returns one line: why DPDK cannot open the NIC, and what to do; "" if no obstacle is visible. `root`: where /sys and
/// /dev are, for tests.
std::string nic_trouble(const std::string& address, const std::string& root = "");

/// By address: the NICs of a configuration that have a trouble.
using NicTroubles = std::map<std::string, std::string>;

}  // namespace roci::rocid
