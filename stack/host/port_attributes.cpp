#include "host/port_attributes.hpp"

#include <algorithm>
#include <cstring>

namespace roci::host {
namespace {

constexpr uint32_t kRoceV2 = 2;
constexpr uint32_t kPortDown = 1, kPortActive = 4;      // values of enum ibv_port_state
constexpr uint32_t kPhysDisabled = 3, kPhysLinkUp = 5;  // values of PortPhysicalState (IBA)
constexpr uint32_t kMaxListedGids = std::size(abi::QueryGidTableReply{}.entry);

}  // namespace

abi::PortAttr port_attributes(const State& state, const DeviceConfig& d) {
    const Capabilities& caps = state.caps;
    abi::PortAttr a{};
    a.state = d.active ? kPortActive : kPortDown;
    a.phys_state = d.active ? kPhysLinkUp : kPhysDisabled;
    a.max_mtu = 5;
    a.active_mtu = active_mtu(d);
    a.gid_table_length = gid_table_length(d);
    a.max_message = caps.max_message;
    a.pkey_table_length = caps.pkeys;
    a.active_width = caps.active_width;
    a.active_speed = caps.active_speed;
    a.port_cap_flags = caps.port_cap_flags;
    return a;
}

abi::QueryGidTableReply gid_table(const DeviceConfig& d) {
    abi::QueryGidTableReply out{};
    for (uint32_t i = 0; i < d.gids.size() && i < kMaxListedGids; ++i) {
        if (d.gids[i].is_zero()) continue;
        abi::GidEntry& e = out.entry[out.count++];
        std::memcpy(e.gid.raw, d.gids[i].bytes.data(), sizeof e.gid.raw);
        e.index = i;
        e.type = kRoceV2;
        d.netdev.copy(e.netdev, sizeof e.netdev - 1);
    }
    return out;
}

void publish_to_clients(State& state, uint32_t device) {
    const DeviceConfig& d = state.devices[device];
    state.platform.publish_device(device, {port_attributes(state, d), gid_table(d)});
}

}  // namespace roci::host
