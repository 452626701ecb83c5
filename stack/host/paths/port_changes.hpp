// What changes about a device while it is in use: its addresses (with a kernel interface behind the port they are the
// interface's), its link.
#pragma once

#include <memory>
#include <span>

#include "host/state.hpp"

namespace roci::host::paths {

/// What engines need to know of a device.
std::unique_ptr<engine::PortAddresses> port_addresses(const DeviceConfig& device);

// As Conductor::set_addresses and Conductor::set_link.
bool set_addresses(State&, uint32_t device, std::span<const DeviceAddress> addresses);
bool set_link(State&, uint32_t device, bool up, uint32_t mtu_bytes);

}  // namespace roci::host::paths
