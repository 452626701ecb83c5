// What queries report about the port of a device.
#pragma once

#include "abi/device_page.hpp"
#include "host/state.hpp"

namespace roci::host {

abi::PortAttr port_attributes(const State&, const DeviceConfig&);
/// Returns the table without its empty entries.
abi::QueryGidTableReply gid_table(const DeviceConfig&);
/// Makes the current addresses and link state of the device visible to clients. Called before programs get an event about them.
void publish_to_clients(State&, uint32_t device);

}  // namespace roci::host
