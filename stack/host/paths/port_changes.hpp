// Changes the addresses and the link state of a device in use.
#pragma once

#include <memory>
#include <span>

#include "host/state.hpp"

namespace roci::host::paths {

/// Returns the addresses and settings of a device that engines read.
std::unique_ptr<io::PortAddresses> port_addresses(const DeviceConfig& device);

// See Conductor::set_addresses and Conductor::set_link.
bool set_addresses(State&, uint32_t device, std::span<const DeviceAddress> addresses);
bool set_link(State&, uint32_t device, bool up, uint32_t mtu_bytes);

}  // namespace roci::host::paths
