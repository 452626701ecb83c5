// The attributes and GIDs of a device's port that clients query.
#pragma once

#include "abi/device_page.hpp"
#include "host/state.hpp"

namespace roci::host {

inline constexpr uint32_t kPortNumber = 1;  ///< a device has one port

abi::PortAttr port_attributes(const State&, const DeviceConfig&);
/// Returns the GID table without its empty entries.
abi::QueryGidTableReply gid_table(const DeviceConfig&);
/// Writes the current addresses and link state of the device into the device page, which clients map. Called before programs get
/// an event about the change.
void publish_to_clients(State&, uint32_t device);

}  // namespace roci::host
