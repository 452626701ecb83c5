#include "host/paths/neighbours.hpp"

#include <algorithm>

#include "wire/describe.hpp"

namespace roci::host::paths {
namespace {

using neighbour::Answer, neighbour::Kind, neighbour::Message;
using wire::to_text;

bool same_prefix(const Gid& a, const Gid& b, uint32_t bits) {
    const uint32_t whole = bits / 8;
    if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin())) return false;
    return bits % 8 == 0 || ((a.bytes[whole] ^ b.bytes[whole]) >> (8 - bits % 8)) == 0;
}

bool on_link(const DeviceConfig& device, const Gid& dest) {
    if (neighbour::is_link_local(dest)) return true;
    for (size_t i = 0; i < device.gids.size() && i < device.prefixes.size(); ++i)
        if (!device.gids[i].is_zero() && device.gids[i].is_ipv4() == dest.is_ipv4() &&
            same_prefix(device.gids[i], dest, device.prefixes[i]))
            return true;
    return false;
}

/// Sets `next` to the next hop according to the configuration. If `dest` is on the link, the next hop is `dest`. Otherwise the
/// next hop is the gateway.
Outcome own_next_hop(const DeviceConfig& device, const Gid& dest, Gid& next) {
    next = dest;
    if (on_link(device, dest)) return done();
    for (const Gid& g : device.gateways) {
        if (g.is_ipv4() != dest.is_ipv4()) continue;
        next = g;
        return done();
    }
    return fail(ENETUNREACH,
                "{} is not on the link of {}, which has no gateway; set `gateway` or a shorter prefix in its [[device]]",
                to_text(dest), device.name);
}

Outcome next_hop(State& state, uint32_t device, const Gid& source, const Gid& dest, Gid& next) {
    const DeviceConfig& d = state.devices[device];
    if (d.resolver == Resolver::own) return own_next_hop(d, dest, next);
    next = dest;
    if (const int error = state.platform.route(device, source, dest, next); error != 0)
        return fail(error, "the kernel has no route to {} by {}", to_text(dest), d.netdev);
    return done();
}

void send_frame(State& state, neighbour::Frame& frame) {
    if (const uint16_t vlan = state.devices[frame.port].vlan; vlan != 0 && !neighbour::insert_tag(frame, vlan)) return;
    // If the port's transmit queue is full, the frame is lost. The cache repeats a lost solicitation.
    (void)state.execute(0, engine::SendFrame{.frame = &frame});
}

// ---- sending solicitations ------------------------------------------------------------------------------------------

/// Returns the source address for a solicitation. Prefers an address in the target's subnet, so that the target can answer.
/// Returns a zero GID if the device has no address of the target's family.
Gid address_near(const DeviceConfig& device, const Gid& target) {
    Gid any;
    for (size_t i = 0; i < device.gids.size(); ++i) {
        const Gid& g = device.gids[i];
        if (g.is_zero() || g.is_ipv4() != target.is_ipv4()) continue;
        if (any.is_zero()) any = g;
        if (neighbour::is_link_local(g) ? neighbour::is_link_local(target)
                                        : i < device.prefixes.size() && same_prefix(g, target, device.prefixes[i]))
            return g;
    }
    return any;
}

void ask(State& state, const neighbour::Question& q) {
    if (q.about.port >= state.devices.size()) return;
    const DeviceConfig& device = state.devices[q.about.port];
    if (device.resolver == Resolver::kernel) return state.platform.solicit(q.about.port, q.about.address);
    const Gid from = address_near(device, q.about.address);
    if (from.is_zero()) return;
    neighbour::Frame frame;
    frame.port = q.about.port;
    neighbour::make_solicitation(frame, {device.mac, from}, q.about.address, q.mac);
    send_frame(state, frame);
}

// ---- answering ------------------------------------------------------------------------------------------------------

void on_solicitation(State& state, uint32_t port, const Message& m) {
    const DeviceConfig& device = state.devices[port];
    const bool ours = has_gid(device, m.target);
    // A neighbour that solicits an address of this device will soon send packets to this device. So such a solicitation may
    // create a cache entry. Any other solicitation only updates an existing entry (RFC 826, RFC 4861 7.2.3).
    if (!m.sender.is_zero() && !m.link.is_zero() && on_link(device, m.sender) && !has_gid(device, m.sender))
        state.neighbours->cache.heard({port, m.sender}, m.link, state.now, ours);
    if (!ours) return;
    neighbour::Frame answer;
    answer.port = port;
    neighbour::make_answer(answer, device.mac, m);
    send_frame(state, answer);
}

void on_advertisement(State& state, uint32_t port, const Message& m) {
    if (has_gid(state.devices[port], m.target)) {
        ++state.neighbours->conflicts;  // `roci status` shows this counter of address conflicts
        return;
    }
    state.neighbours->cache.heard({port, m.target}, m.link, state.now, false, m.override_link);
}

void on_echo(State& state, uint32_t port, const Message& m, const neighbour::Frame& frame) {
    const DeviceConfig& device = state.devices[port];
    if (!has_gid(device, m.target)) return;
    ++state.neighbours->echoes;
    neighbour::Frame answer;
    answer.port = port;
    neighbour::make_echo_reply(answer, device.mac, m, frame.bytes.data());
    send_frame(state, answer);
}

void on_frame(State& state, const neighbour::Frame& frame) {
    if (frame.port >= state.devices.size()) return;
    const DeviceConfig& device = state.devices[frame.port];
    const bool to_group = (frame.bytes[0] & 1) != 0;
    if (!to_group && !std::equal(device.mac.bytes.begin(), device.mac.bytes.end(), frame.bytes.begin())) return;
    const Message m = neighbour::parse(frame.bytes.data(), frame.length);
    if (m.from == device.mac) return;  // a frame that this device has sent
    if (m.kind == Kind::solicitation) return on_solicitation(state, frame.port, m);
    if (m.kind == Kind::advertisement) return on_advertisement(state, frame.port, m);
    if (m.kind == Kind::echo) on_echo(state, frame.port, m, frame);
}

void take_frames(State& state) {
    for (const auto& ring : state.shared.frames) {
        if (ring == nullptr) continue;
        neighbour::Frame frame;
        for (uint32_t i = 0; i < io::kFrameRingSize && ring->pop(frame); ++i) on_frame(state, frame);
    }
}

// ---- waiting requests -----------------------------------------------------------------------------------------------

void settle(State& state, const neighbour::Settled& s) {
    Neighbours& n = *state.neighbours;
    std::erase_if(n.requests, [&](HeldRequest& r) {
        if (r.neighbour != s.about) return false;
        n.ready.push_back(std::move(r));
        return true;
    });
    std::erase_if(n.ids, [&](const HeldId& h) {
        if (h.neighbour != s.about) return false;
        n.settled_ids.push_back({h.session, h.id, s.known ? 0 : ETIMEDOUT});
        return true;
    });
}

bool is_waited_for(const Neighbours& n, const neighbour::Key& key) {
    return std::ranges::find(n.requests, key, &HeldRequest::neighbour) != n.requests.end() ||
           std::ranges::find(n.ids, key, &HeldId::neighbour) != n.ids.end();
}

/// Removes from `list` the entries for which `ends` returns true. If no request and no id waits for a neighbour any more, permits
/// the eviction of the neighbour's cache entry.
template <class Held, class Ends>
void stop_waiting(State& state, std::vector<Held>& list, Ends ends) {
    Neighbours& n = *state.neighbours;
    std::vector<neighbour::Key> keys;
    std::erase_if(list, [&](const Held& held) {
        if (!ends(held)) return false;
        keys.push_back(held.neighbour);
        return true;
    });
    for (const neighbour::Key& key : keys)
        if (!is_waited_for(n, key)) n.cache.abandon(key);
}

void expire_ids(State& state) {
    Neighbours& n = *state.neighbours;
    stop_waiting(state, n.ids, [&](const HeldId& h) {
        if (h.deadline > state.now) return false;
        n.settled_ids.push_back({h.session, h.id, ETIMEDOUT});
        return true;
    });
}

/// Finds the next hop to `dest` and looks up the MAC address of the next hop in the neighbour cache.
Outcome look_up_link(State& state, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac) {
    neighbour::Key key{device, {}};
    if (Outcome o = next_hop(state, device, source, dest, key.address); o.failed()) return o;
    if (state.devices[device].resolver == Resolver::socket) {
        mac = state.devices[device].mac;  // a placeholder: the kernel itself finds the MAC address of the next hop
        return done();
    }
    if (neighbour::is_multicast(key.address)) return fail(EINVAL, "{} is a multicast address", to_text(dest));
    const neighbour::Lookup found = state.neighbours->cache.find(key, state.now);
    mac = found.mac;
    if (found.answer == Answer::known) return done();
    if (found.answer == Answer::failed)
        return fail(ETIMEDOUT, "{} does not answer on the link of {}{}", to_text(key.address), state.devices[device].name,
                    key.address == dest ? "" : fmt::format(" (gateway to {})", to_text(dest)));
    Outcome o = fail(EAGAIN, "the MAC address of {} is being resolved", to_text(key.address));
    o.waits_for = key;
    return o;
}

/// For a port that cannot resolve neighbours: looks up a MAC address that overhear() has stored.
Outcome recall(State& state, uint32_t device, const Gid& dest, MacAddress& mac) {
    const auto known = state.neighbours->cache.recall({device, dest});
    if (!known)
        return fail(EHOSTUNREACH, "no MAC address known for {}: not an address of this rocid, and the client gave none",
                    to_text(dest));
    mac = *known;
    return done();
}

}  // namespace

Outcome find_neighbour(State& state, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac) {
    if (const auto configured = state.neighbours->cache.configured({device, dest})) {
        mac = *configured;
        return done();
    }
    if (const auto own = device_of(state.devices, dest)) {
        mac = state.devices[*own].mac;
        return done();
    }
    if (state.devices[device].resolver == Resolver::none) return recall(state, device, dest, mac);
    return look_up_link(state, device, source, dest, mac);
}

void overhear(State& state, uint32_t device, const Gid& peer, const MacAddress& mac) {
    if (state.devices[device].resolver == Resolver::none) state.neighbours->cache.heard({device, peer}, mac, state.now, true);
}

void ask_neighbours(State& state) {
    neighbour::Question q;
    while (state.neighbours->cache.next_question(q)) ask(state, q);
}

void service(State& state) {
    Neighbours& n = *state.neighbours;
    take_frames(state);
    n.cache.advance(state.now);
    ask_neighbours(state);
    neighbour::Settled s;
    while (n.cache.next_settled(s)) settle(state, s);
    expire_ids(state);
}

Nanos next_deadline(const State& state) {
    Nanos next = state.neighbours->cache.next_deadline();
    for (const HeldId& h : state.neighbours->ids) next = std::min(next, h.deadline);
    return next;
}

void forget_requests(State& state, uint32_t session) {
    const auto of_session = [session](const HeldRequest& held) { return held.session == session; };
    stop_waiting(state, state.neighbours->requests, of_session);
    std::erase_if(state.neighbours->ready, of_session);
}

void forget_session(State& state, uint32_t session) {
    forget_requests(state, session);
    const auto of_session = [session](const auto& held) { return held.session == session; };
    stop_waiting(state, state.neighbours->ids, of_session);
    std::erase_if(state.neighbours->settled_ids, of_session);
}

void forget_id(State& state, uint32_t session, uint32_t id) {
    const auto of_id = [=](const auto& held) { return held.session == session && held.id == id; };
    stop_waiting(state, state.neighbours->ids, of_id);
    std::erase_if(state.neighbours->settled_ids, of_id);
}

void announce(State& state, uint32_t device) {
    const DeviceConfig& d = state.devices[device];
    if (d.resolver != Resolver::own) return;
    for (const Gid& g : d.gids) {
        if (g.is_zero()) continue;
        neighbour::Frame frame;
        frame.port = device;
        neighbour::make_announcement(frame, {d.mac, g});
        send_frame(state, frame);
    }
}

}  // namespace roci::host::paths
