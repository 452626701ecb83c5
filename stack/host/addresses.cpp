// What changes about a device while it is in use: its addresses (with a kernel interface behind the port they are the
// interface's), its link.
#include <algorithm>
#include <utility>

#include "host/handlers.hpp"
#include "host/neighbours.hpp"

namespace roci::host {
namespace {

constexpr uint32_t kPortActive = 9, kPortError = 10, kGidChange = 18;  // IBV_EVENT_PORT_ACTIVE, _PORT_ERR, _GID_CHANGE
constexpr uint32_t kPortNumber = 1;

/// Engines look at the new ones from now on.
void publish(Host& host, uint32_t device) {
    const DeviceConfig& d = host.devices[device];
    auto next = port_addresses(d);
    host.shared.addresses.publish(device, next.get());
    host.fence_all();
    host.addresses[device] = std::move(next);
}

/// What stays keeps its index: QPs, address handles and programs name GIDs by it. What is new takes the first free one.
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

void tell_sessions(Host& host, uint32_t device, uint32_t event) {
    abi::AsyncEventRecord record{};
    record.event_type = event;
    record.handle = kPortNumber;
    for (const auto& [id, session] : host.sessions)
        if (session->device == device) host.platform.send_async(id, record);
}

}  // namespace

std::unique_ptr<engine::PortAddresses> port_addresses(const DeviceConfig& d) {
    return std::make_unique<engine::PortAddresses>(
        engine::PortAddresses{d.mac, d.gids, d.mtu_bytes, d.resolver == Resolver::own, d.vlan});
}

bool Conductor::set_addresses(uint32_t device, std::span<const DeviceAddress> addresses) {
    Impl& host = *impl_;
    if (device >= host.devices.size()) return false;
    if (!replace(host.devices[device], addresses, gid_table_length(host.devices[device]))) return false;
    publish(host, device);
    tell_sessions(host, device, kGidChange);
    announce(host, device);
    return true;
}

bool Conductor::set_link(uint32_t device, bool up, uint32_t mtu) {
    Impl& host = *impl_;
    if (device >= host.devices.size()) return false;
    DeviceConfig& d = host.devices[device];
    if (d.active == up && d.mtu_bytes == mtu) return false;
    if (d.mtu_bytes != mtu) {
        d.mtu_bytes = mtu;
        publish(host, device);
    }
    if (std::exchange(d.active, up) == up) return true;
    tell_sessions(host, device, up ? kPortActive : kPortError);
    if (up) announce(host, device);
    return true;
}

void Conductor::neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac) {
    impl_->neighbours->cache.heard({device, address}, mac, impl_->now, false);
}

void Conductor::neighbour_gone(uint32_t device, const Gid& address) {
    impl_->neighbours->cache.gone({device, address}, impl_->now);
}

bool Conductor::next_reply(uint32_t& session, Reply& reply, bool& close) {
    auto& replies = impl_->neighbours->replies;
    if (replies.empty()) return false;
    session = replies.front().session;
    reply = std::move(replies.front().reply);
    close = replies.front().close;
    replies.pop_front();
    return true;
}

}  // namespace roci::host
