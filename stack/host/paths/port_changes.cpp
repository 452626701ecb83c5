#include "host/paths/port_changes.hpp"

#include <algorithm>
#include <utility>

#include "host/paths/neighbours.hpp"
#include "host/port_attributes.hpp"

namespace roci::host::paths {
namespace {

/// Replaces the device's addresses in the table that the engines read.
void publish(State& state, uint32_t device) {
    const DeviceConfig& d = state.devices[device];
    auto next = port_addresses(d);
    state.shared.addresses.publish(device, next.get());
    state.fence_all();
    state.addresses[device] = std::move(next);
}

/// Replaces the addresses of a device. An address that remains keeps its index, because QPs, address handles and programs store
/// this index. A new address gets the first free index below `most`. Returns true if an address was added or removed.
bool replace(DeviceConfig& d, std::span<const DeviceAddress> now, size_t most) {
    bool changed = false;
    d.prefixes.resize(d.gids.size());
    for (size_t i = 0; i < d.gids.size(); ++i) {
        const auto it = std::find_if(now.begin(), now.end(), [&](const DeviceAddress& a) { return a.gid == d.gids[i]; });
        if (d.gids[i].is_zero()) continue;
        if (it != now.end()) {
            d.prefixes[i] = it->prefix;
            continue;
        }
        d.gids[i] = {};
        changed = true;
    }
    for (const DeviceAddress& a : now) {
        if (a.gid.is_zero() || std::find(d.gids.begin(), d.gids.end(), a.gid) != d.gids.end()) continue;
        auto place = size_t(std::find(d.gids.begin(), d.gids.end(), Gid{}) - d.gids.begin());
        if (place >= most) continue;
        if (place == d.gids.size()) {
            d.gids.emplace_back();
            d.prefixes.emplace_back();
        }
        d.gids[place] = a.gid;
        d.prefixes[place] = a.prefix;
        changed = true;
    }
    return changed;
}

void notify_sessions(State& state, uint32_t device, abi::AsyncEvent event) {
    abi::AsyncEventRecord record{};
    record.event_type = uint32_t(event);
    record.handle = kPortNumber;
    for (const auto& [id, session] : state.sessions)
        if (session->device == device) state.platform.send_async(id, record);
}

}  // namespace

std::unique_ptr<io::PortAddresses> port_addresses(const DeviceConfig& d) {
    return std::make_unique<io::PortAddresses>(
        io::PortAddresses{d.mac, d.gids, d.mtu_bytes, d.resolver == Resolver::own, d.vlan, d.congestion});
}

bool set_addresses(State& state, uint32_t device, std::span<const DeviceAddress> addresses) {
    if (device >= state.devices.size()) return false;
    if (!replace(state.devices[device], addresses, gid_table_length(state.devices[device]))) return false;
    publish(state, device);
    publish_to_clients(state, device);
    notify_sessions(state, device, abi::AsyncEvent::gid_change);
    announce(state, device);
    return true;
}

bool set_link(State& state, uint32_t device, bool up, uint32_t mtu) {
    if (device >= state.devices.size()) return false;
    DeviceConfig& d = state.devices[device];
    if (d.active == up && d.mtu_bytes == mtu) return false;
    if (d.mtu_bytes != mtu) {
        d.mtu_bytes = mtu;
        publish(state, device);
    }
    const bool changed = std::exchange(d.active, up) != up;
    publish_to_clients(state, device);
    if (!changed) return true;
    notify_sessions(state, device, up ? abi::AsyncEvent::port_active : abi::AsyncEvent::port_err);
    if (up) announce(state, device);
    return true;
}

}  // namespace roci::host::paths
