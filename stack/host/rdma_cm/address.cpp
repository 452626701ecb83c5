// Addresses and ports of ids: binds ids, resolves addresses and routes, and starts listeners.
#include <algorithm>
#include <bit>

#include "host/paths/resolve.hpp"
#include "host/rdma_cm/service.hpp"
#include "wire/describe.hpp"

namespace roci::host::rdma_cm {
namespace {

using neighbour::is_link_local;
using wire::to_text;

constexpr uint16_t kIpv4 = 2, kIpv6 = 10;  // values of AF_INET and AF_INET6
constexpr uint16_t kFirstEphemeral = 32768, kEphemerals = 28232;
constexpr uint8_t kZeros[4] = {};
constexpr uint8_t kPacketLifeTime = 13;  // 4.096 us * 2^13 = 34 ms

bool is_loopback(const Gid& g) {
    static constexpr Gid kOne{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    return g == kOne || (g.is_ipv4() && g.bytes[12] == 127);
}
bool is_any(const Gid& g) {
    return g.is_zero() || (g.is_ipv4() && std::all_of(&g.bytes[12], &g.bytes[16], [](uint8_t b) { return b == 0; }));
}
/// Returns the number of leading bits that two addresses have in common.
uint32_t common_prefix(const Gid& a, const Gid& b) {
    for (uint32_t i = 0; i < 16; ++i)
        if (const auto x = uint8_t(a.bytes[i] ^ b.bytes[i]); x != 0) return i * 8 + uint32_t(std::countl_zero(x));
    return 128;
}

struct Place {
    uint32_t device = 0;
    Gid address;
};
std::optional<Place> place_of(const State& state, const Gid& gid) {
    const auto device = device_of(state.devices, gid);
    return device ? std::optional(Place{*device, gid}) : std::nullopt;
}

/// Returns the address of `device` that has the longest common prefix with `dest`. Considers only addresses of the same family
/// and the same scope (link-local or not).
std::optional<Gid> source_for(const DeviceConfig& device, const Gid& dest) {
    std::optional<Gid> best;
    for (const Gid& g : device.gids) {
        if (g.is_zero() || g.is_ipv4() != dest.is_ipv4() || is_link_local(g) != is_link_local(dest)) continue;
        if (!best || common_prefix(g, dest) > common_prefix(*best, dest)) best = g;
    }
    return best;
}

/// Selects the device and source address for `dest`. If `dest` is an address of a device D of this rocid, selects the loopback
/// peer of D, or D itself if D has no peer. Otherwise selects the address with the longest common prefix with `dest`.
std::optional<Place> route_to(const State& state, const Gid& dest) {
    if (const auto owner = place_of(state, dest)) {
        const std::string& peer = state.devices[owner->device].peer;
        for (uint32_t d = 0; d < state.devices.size(); ++d) {
            if (peer.empty() || state.devices[d].name != peer) continue;
            if (const auto source = source_for(state.devices[d], dest)) return Place{d, *source};
        }
        return owner;
    }
    std::optional<Place> best;
    for (uint32_t d = 0; d < state.devices.size(); ++d) {
        const auto source = source_for(state.devices[d], dest);
        if (source && (!best || common_prefix(*source, dest) > common_prefix(best->address, dest))) best = Place{d, *source};
    }
    return best;
}

/// Returns the device and address for 127.0.0.1 or ::1. Returns the first address of the family that is not link-local. If all
/// addresses of the family are link-local, returns the first address.
std::optional<Place> loopback_of(const State& state, bool ipv4) {
    std::optional<Place> link_local;
    for (uint32_t d = 0; d < state.devices.size(); ++d)
        for (const Gid& g : state.devices[d].gids) {
            if (g.is_zero() || g.is_ipv4() != ipv4) continue;
            if (!is_link_local(g)) return Place{d, g};
            if (!link_local) link_local = Place{d, g};
        }
    return link_local;
}

/// Returns true if a device has a kernel interface. Some programs, such as libfabric, find devices by their kernel interfaces. If
/// a device has an interface, binding to 127.0.0.1 selects no device, as in the kernel, so that such programs try all devices. If
/// no device has an interface, such programs try only 127.0.0.1. So binding to 127.0.0.1 then selects the device of
/// loopback_of().
bool has_interfaces(const State& state) {
    return std::any_of(state.devices.begin(), state.devices.end(),
                       [](const DeviceConfig& d) { return d.resolver == Resolver::kernel || d.resolver == Resolver::socket; });
}

Outcome check_address(const abi::CmAddress& a) {
    if (a.family != kIpv4 && a.family != kIpv6)
        return fail(EAFNOSUPPORT, "address family {}: only IPv4 and IPv6 addresses are served", a.family);
    return done();
}

// ---- ports ----------------------------------------------------------------------------------------------------------

PortUser user_of(uint32_t session, const CmId& id) {
    PortUser u;
    u.session = session;
    u.id = id.handle;
    u.reuse = id.reuse;
    if (id.device) {
        u.address = id.local;
        return u;
    }
    u.ipv4 = id.source.family != kIpv6 || !id.af_only;
    u.ipv6 = id.source.family != kIpv4;
    return u;
}

bool overlap(const PortUser& a, const PortUser& b) {
    if (!a.address.is_zero() && !b.address.is_zero()) return a.address == b.address;
    const auto hears = [](const PortUser& u, const Gid& g) { return g.is_ipv4() ? u.ipv4 : u.ipv6; };
    if (!a.address.is_zero()) return hears(b, a.address);
    if (!b.address.is_zero()) return hears(a, b.address);
    return (a.ipv4 && b.ipv4) || (a.ipv6 && b.ipv6);
}

bool port_free(const State& state, cm::PortSpace space, uint16_t port, const PortUser& asking) {
    const auto it = state.cm->ports.find({space, port});
    if (it == state.cm->ports.end()) return true;
    return std::none_of(it->second.begin(), it->second.end(),
                        [&](const PortUser& u) { return overlap(u, asking) && !(u.reuse && asking.reuse && !u.listening); });
}

Outcome take_port(State& state, uint32_t session, CmId& id) {
    const PortUser user = user_of(session, id);
    if (id.source.port != 0) {
        if (!port_free(state, id.space, id.source.port, user)) return fail(EADDRINUSE, "port {} is in use", id.source.port);
    } else {
        const uint32_t start = state.cm->random();
        uint32_t i = 0;
        const auto candidate = [&] { return uint16_t(kFirstEphemeral + (start + i) % kEphemerals); };
        const auto taken = [&] { return state.cm->ports.contains({id.space, candidate()}); };
        while (i < kEphemerals && taken()) ++i;
        if (i == kEphemerals) return fail(EADDRNOTAVAIL, "all {} ephemeral ports are in use", kEphemerals);
        id.source.port = candidate();
    }
    state.cm->ports[{id.space, id.source.port}].push_back(user);
    id.owns_port = true;
    return done();
}

// ---- binding --------------------------------------------------------------------------------------------------------

Outcome bind_to(State& state, uint32_t session, CmId& id, const abi::CmAddress& address) {
    const Gid gid = to_gid(address);
    id.source = address;
    if (!is_any(gid) && !(is_loopback(gid) && has_interfaces(state))) {
        const auto place = is_loopback(gid) ? loopback_of(state, gid.is_ipv4()) : place_of(state, gid);
        if (!place) return fail(ENODEV, "{} is not an address of a device of this rocid", to_text(gid));
        id.device = place->device;
        id.local = place->address;
        id.source = to_address(place->address, address.port);
        id.source.scope = address.scope;
    }
    if (Outcome o = take_port(state, session, id); o.failed()) {
        id.source = {};
        id.device.reset();
        id.local = {};
        return o;
    }
    id.state = IdState::bound;
    return done();
}

/// Ends the resolution of an address and queues the event. After an error the id is in the state `bound`, so that the program can
/// call rdma_resolve_addr again.
void settle_address(State& state, uint32_t session, CmId& id, int error) {
    CmEvent event;
    id.state = error == 0 ? IdState::addr_resolved : IdState::bound;
    id.journal.add(state.now, error == 0 ? CmHappening::resolved : CmHappening::unresolved, -error);
    if (error != 0) {
        event.type = CmEventType::addr_error;
        event.status = -error;
    }
    push_event(state, session, id, event);
}

}  // namespace

abi::CmAddress to_address(const Gid& gid, uint16_t port) {
    abi::CmAddress a{};
    a.family = gid.is_ipv4() ? kIpv4 : kIpv6;
    a.port = port;
    std::copy(gid.bytes.begin(), gid.bytes.end(), a.ip.raw);
    return a;
}
Gid to_gid(const abi::CmAddress& a) {
    Gid g;
    std::copy(std::begin(a.ip.raw), std::end(a.ip.raw), g.bytes.begin());
    return g;
}

void release_port(State& state, uint32_t session, const CmId& id) {
    if (!id.owns_port) return;
    const auto it = state.cm->ports.find({id.space, id.source.port});
    if (it == state.cm->ports.end()) return;
    std::erase_if(it->second, [&](const PortUser& u) { return u.session == session && u.id == id.handle; });
    if (it->second.empty()) state.cm->ports.erase(it);
}

Outcome bind(Call& c) {
    const auto in = c.in<abi::CmBindRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (Outcome o = check_address(in.address); o.failed()) return o;
    if (id->state != IdState::idle) return fail(EINVAL, "the id is bound already");
    return bind_to(c.state, c.session.id, *id, in.address);
}

namespace {

/// Binds an unbound id to the source address of the call. If the call has no source address, binds the id to the wildcard address
/// of the destination's family.
Outcome bind_source(Call& c, CmId& id, const abi::CmResolveRequest& in) {
    abi::CmAddress source = in.source;
    if (source.family == 0) source.family = in.dest.family;
    if (source.family == kIpv4 && !to_gid(source).is_ipv4()) source = to_address(Gid::from_ipv4(kZeros), source.port);
    if (Outcome o = check_address(source); o.failed()) return o;
    return bind_to(c.state, c.session.id, id, source);
}

/// If the id has no device yet, selects the device and source address for `dest`. Replaces a loopback or wildcard address in
/// `dest` by the device's address.
Outcome choose_device(State& state, CmId& id, uint16_t family, Gid& dest) {
    const bool own = is_any(dest) || is_loopback(dest);
    if (own) {
        const auto place = loopback_of(state, family == kIpv4);
        if (!id.device && !place) return fail(ENODEV, "no device has an address of family {}", family);
        dest = id.device ? id.local : place->address;
    }
    if (!id.device) {
        const auto route = own ? place_of(state, dest) : route_to(state, dest);
        if (!route) return fail(ENETUNREACH, "no device of this rocid has an address that reaches {}", to_text(dest));
        id.device = route->device;
        id.local = route->address;
    } else if (id.local.is_ipv4() != dest.is_ipv4()) {
        return fail(EINVAL, "{} cannot reach {}: one is IPv4, the other IPv6", to_text(id.local), to_text(dest));
    }
    return done();
}

}  // namespace

Outcome resolve_addr(Call& c) {
    const auto in = c.in<abi::CmResolveRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (Outcome o = check_address(in.dest); o.failed()) return o;
    if (id->state != IdState::idle && id->state != IdState::bound)
        return fail(EINVAL, "the id has a resolved address already, or listens");
    // A program can repeat a failed resolution. Each resolution adds an event, so the number of waiting events is limited.
    constexpr uint32_t kMostWaiting = 64;
    if (id->events_waiting >= kMostWaiting)
        return fail(ENOMEM, "the id has {} events that were not fetched, the limit", id->events_waiting);
    if (id->state == IdState::idle)
        if (Outcome o = bind_source(c, *id, in); o.failed()) return o;
    id->dest = in.dest;
    Gid dest = to_gid(in.dest);
    if (Outcome o = choose_device(c.state, *id, in.dest.family, dest); o.failed()) return o;
    id->source = to_address(id->local, id->source.port);
    id->source.scope = is_link_local(id->local) ? in.dest.scope : 0;
    id->remote = dest;
    std::copy(std::begin(in.mac), std::end(in.mac), id->remote_mac.bytes.begin());
    paths::ResolvedPath path;
    const Outcome found = paths::resolve_path(c.state, *id->device, path_to_peer(c.state, *id), {}, path);
    if (!found.waits_for) {
        settle_address(c.state, c.session.id, *id, found.error);
        return done();
    }
    constexpr Nanos kMs = 1'000'000;
    id->state = IdState::resolving;
    const Nanos deadline = in.timeout_ms == 0 ? kNever : c.state.now + in.timeout_ms * kMs;
    c.state.neighbours->ids.push_back({c.session.id, id->handle, *found.waits_for, deadline});
    return done();
}

void take_settled_addresses(State& state) {
    auto& settled = state.neighbours->settled_ids;
    for (; !settled.empty(); settled.pop_front()) {
        const paths::SettledId s = settled.front();
        const auto client = state.cm->clients.find(s.session);
        CmId* id = client != state.cm->clients.end() ? client->second.ids.find(s.id) : nullptr;
        if (id != nullptr && id->state == IdState::resolving) settle_address(state, s.session, *id, s.error);
    }
}

Outcome resolve_route(Call& c) {
    CmId* id;
    if (Outcome o = find_id(c, c.in<abi::HandleRequest>().handle, id); o.failed()) return o;
    if (id->state != IdState::addr_resolved)
        return fail(EINVAL, "the id's address is not resolved; call rdma_resolve_addr first");
    id->state = IdState::route_resolved;
    CmEvent event;
    event.type = CmEventType::route_resolved;
    push_event(c.state, c.session.id, *id, event);
    return done();
}

Outcome listen(Call& c) {
    constexpr uint32_t kMostBacklog = 1024;
    const auto in = c.in<abi::CmListenRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (id->state == IdState::idle) {
        const abi::CmAddress any = to_address(Gid::from_ipv4(kZeros), 0);
        if (Outcome o = bind_to(c.state, c.session.id, *id, any); o.failed()) return o;
    }
    if (id->state != IdState::bound) return fail(EINVAL, "only an id in the bound state can listen");
    auto& users = c.state.cm->ports[{id->space, id->source.port}];
    const auto self = std::find_if(users.begin(), users.end(),
                                   [&](const PortUser& u) { return u.session == c.session.id && u.id == id->handle; });
    for (const PortUser& u : users)
        if (&u != &*self && u.listening && overlap(u, *self))
            return fail(EADDRINUSE, "port {} has a listener already", id->source.port);
    self->listening = true;
    cm::Listener l;
    l.service_id = cm::service_id(id->space, id->source.port);
    l.port = id->device;
    l.address = self->address;
    l.ipv4 = self->ipv4;
    l.ipv6 = self->ipv6;
    l.owner = uint64_t(c.session.id) << 32 | id->handle;
    id->listener = c.state.cm->manager.listen(l);
    id->backlog = in.backlog == 0 || in.backlog > kMostBacklog ? kMostBacklog : in.backlog;
    id->state = IdState::listening;
    return done();
}

abi::CmQueryReply describe_route(const State& state, const CmId& id) {
    abi::CmQueryReply out{};
    out.source = id.source;
    out.dest = id.dest;
    out.device = abi::kNoHandle;
    if (!id.device) return out;
    const DeviceConfig& device = state.devices[*id.device];
    out.device = *id.device;
    out.port_num = 1;
    device.name.copy(out.device_name, sizeof out.device_name - 1);
    std::copy(id.local.bytes.begin(), id.local.bytes.end(), out.sgid.raw);
    std::copy(id.remote.bytes.begin(), id.remote.bytes.end(), out.dgid.raw);
    out.mtu = active_mtu(device);
    out.pkey = 0xffff;
    out.traffic_class = id.traffic_class;
    out.hop_limit = 64;
    out.packet_life_time = kPacketLifeTime;
    out.resolved = id.state >= IdState::route_resolved ? 1 : 0;
    return out;
}

Outcome query(Call& c) {
    CmId* id;
    if (Outcome o = find_id(c, c.in<abi::HandleRequest>().handle, id); o.failed()) return o;
    c.answer(describe_route(c.state, *id));
    return done();
}

}  // namespace roci::host::rdma_cm
