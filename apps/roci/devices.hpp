// Queries the attributes of rocid's devices. `roci run` shows them in /sys/class/infiniband, and `roci up` prints them.
#pragma once

#include <string>
#include <vector>

#include "abi/control.hpp"

namespace roci::cli {

struct Device {
    std::string name;    ///< "roci0"
    std::string netdev;  ///< kernel interface of the port, or ""
    abi::DeviceAttr attr{};
    abi::PortAttr port{};
    std::vector<abi::GidEntry> gids;
};

/// Queries all devices of the rocid at `socket_path`. If no rocid answers or rocid refuses a query, sets `why` and returns an
/// empty list.
std::vector<Device> query_devices(const std::string& socket_path, std::string& why);

/// Returns a GID as the kernel writes it: "fe80:0000:…".
std::string gid_text(const abi::GidValue& gid);
/// Returns a GUID as the kernel writes it: "0200:00ff:fe00:0001". `guid_be` is big endian in memory.
std::string guid_text(uint64_t guid_be);

}  // namespace roci::cli
