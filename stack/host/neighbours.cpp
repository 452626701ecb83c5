#include "host/neighbours.hpp"

#include <algorithm>

#include "host/address.hpp"
#include "host/cm.hpp"

namespace roci::host {
namespace {

using neighbour::Answer, neighbour::Kind, neighbour::Message;

bool has_gid(const DeviceConfig& device, const Gid& gid) {
    return !gid.is_zero() && std::find(device.gids.begin(), device.gids.end(), gid) != device.gids.end();
}

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

/// By the configuration: on the link, or by the gateway.
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

Outcome next_hop(Host& host, uint32_t device, const Gid& source, const Gid& dest, Gid& next) {
    const DeviceConfig& d = host.devices[device];
    if (d.resolver == Resolver::own) return own_next_hop(d, dest, next);
    next = dest;
    if (const int error = host.platform.route(device, source, dest, next); error != 0)
        return fail(error, "the kernel has no route to {} by {}", to_text(dest), d.netdev);
    return done();
}

void send_frame(Host& host, neighbour::Frame& frame) {
    if (const uint16_t vlan = host.devices[frame.port].vlan; vlan != 0 && !neighbour::insert_tag(frame, vlan)) return;
    engine::Command command;
    command.kind = engine::Command::Kind::send_frame;
    command.frame = &frame;
    (void)host.execute(0, command);  // a full port loses it; whoever needs it asks again
}

// ---- asking ---------------------------------------------------------------------------------------------------------

/// Our address that the question is asked from: of the link that the answer lives on, so that it knows the way back.
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

void ask(Host& host, const neighbour::Question& q) {
    if (q.about.port >= host.devices.size()) return;
    const DeviceConfig& device = host.devices[q.about.port];
    if (device.resolver == Resolver::kernel) return host.platform.solicit(q.about.port, q.about.address);
    const Gid from = address_near(device, q.about.address);
    if (from.is_zero()) return;
    neighbour::Frame frame;
    frame.port = q.about.port;
    neighbour::make_solicitation(frame, {device.mac, from}, q.about.address, q.mac);
    send_frame(host, frame);
}

// ---- answering ------------------------------------------------------------------------------------------------------

void on_solicitation(Host& host, uint32_t port, const Message& m) {
    const DeviceConfig& device = host.devices[port];
    const bool ours = has_gid(device, m.target);
    // Who asks us will want to hear from us: his answer is in his question (RFC 826, RFC 4861 7.2.3).
    if (!m.sender.is_zero() && !m.link.is_zero() && on_link(device, m.sender) && !has_gid(device, m.sender))
        host.neighbours->cache.heard({port, m.sender}, m.link, host.now, ours);
    if (!ours) return;
    neighbour::Frame answer;
    answer.port = port;
    neighbour::make_answer(answer, device.mac, m);
    send_frame(host, answer);
}

void on_advertisement(Host& host, uint32_t port, const Message& m) {
    if (has_gid(host.devices[port], m.target)) {
        ++host.neighbours->conflicts;  // somebody else has our address: said in status
        return;
    }
    host.neighbours->cache.heard({port, m.target}, m.link, host.now, false, m.override_link);
}

void on_echo(Host& host, uint32_t port, const Message& m, const neighbour::Frame& frame) {
    const DeviceConfig& device = host.devices[port];
    if (!has_gid(device, m.target)) return;
    ++host.neighbours->echoes;
    neighbour::Frame answer;
    answer.port = port;
    neighbour::make_echo_reply(answer, device.mac, m, frame.bytes.data());
    send_frame(host, answer);
}

void on_frame(Host& host, const neighbour::Frame& frame) {
    if (frame.port >= host.devices.size()) return;
    const DeviceConfig& device = host.devices[frame.port];
    const bool to_group = (frame.bytes[0] & 1) != 0;
    if (!to_group && !std::equal(device.mac.bytes.begin(), device.mac.bytes.end(), frame.bytes.begin())) return;
    const Message m = neighbour::parse(frame.bytes.data(), frame.length);
    if (m.from == device.mac) return;  // our own, come back
    if (m.kind == Kind::solicitation) return on_solicitation(host, frame.port, m);
    if (m.kind == Kind::advertisement) return on_advertisement(host, frame.port, m);
    if (m.kind == Kind::echo) on_echo(host, frame.port, m, frame);
}

void take_frames(Host& host) {
    for (const auto& ring : host.shared.frames) {
        if (ring == nullptr) continue;
        neighbour::Frame frame;
        for (uint32_t i = 0; i < engine::kFrameRingSize && ring->pop(frame); ++i) on_frame(host, frame);
    }
}

// ---- whoever waits --------------------------------------------------------------------------------------------------

void settle(Host& host, const neighbour::Settled& s) {
    std::vector<HeldRequest> ready;
    std::erase_if(host.neighbours->requests, [&](HeldRequest& r) {
        if (r.neighbour != s.about) return false;
        ready.push_back(std::move(r));
        return true;
    });
    for (const HeldRequest& r : ready) {
        HeldReply out;
        out.session = r.session;
        out.reply = host.answer(r.session, r.packet, {}, out.close);
        if (!out.reply.deferred) host.neighbours->replies.push_back(std::move(out));
    }
    std::vector<HeldId> ids;
    std::erase_if(host.neighbours->ids, [&](const HeldId& h) {
        if (h.neighbour != s.about) return false;
        ids.push_back(h);
        return true;
    });
    for (const HeldId& h : ids) cm_address_settled(host, h, s.known ? 0 : ETIMEDOUT);
}

void expire_ids(Host& host) {
    std::vector<HeldId> late;
    std::erase_if(host.neighbours->ids, [&](const HeldId& h) {
        if (h.deadline > host.now) return false;
        late.push_back(h);
        return true;
    });
    for (const HeldId& h : late) cm_address_settled(host, h, ETIMEDOUT);
}

}  // namespace

Outcome find_neighbour(Host& host, uint32_t device, const Gid& source, const Gid& dest, MacAddress& mac) {
    const auto& told = host.devices[device].neighbours;
    if (const auto it = told.find(dest); it != told.end()) {
        mac = it->second;
        return done();
    }
    for (const DeviceConfig& d : host.devices) {
        if (!has_gid(d, dest)) continue;
        mac = d.mac;
        return done();
    }
    if (host.devices[device].resolver == Resolver::none) {
        const auto it = host.cm->neighbours.find(dest);
        if (it == host.cm->neighbours.end())
            return fail(EHOSTUNREACH, "no MAC address known for {}: not an address of this rocid, and the client gave none",
                        to_text(dest));
        mac = it->second;
        return done();
    }
    neighbour::Key key{device, {}};
    if (Outcome o = next_hop(host, device, source, dest, key.address); o.failed()) return o;
    if (host.devices[device].resolver == Resolver::socket) {
        mac = host.devices[device].mac;  // stands for the next hop's, which the kernel finds
        return done();
    }
    if (neighbour::is_multicast(key.address)) return fail(EINVAL, "{} is a multicast address", to_text(dest));
    const neighbour::Lookup found = host.neighbours->cache.find(key, host.now);
    mac = found.mac;
    if (found.answer == Answer::known) return done();
    if (found.answer == Answer::failed)
        return fail(ETIMEDOUT, "{} does not answer on the link of {}{}", to_text(key.address), host.devices[device].name,
                    key.address == dest ? "" : fmt::format(" (gateway to {})", to_text(dest)));
    Outcome o = fail(EAGAIN, "{} is being asked for its MAC address", to_text(key.address));
    o.waits_for = key;
    return o;
}

void neighbours_service(Host& host) {
    Neighbours& n = *host.neighbours;
    take_frames(host);
    n.cache.advance(host.now);
    neighbour::Question q;
    while (n.cache.next_question(q)) ask(host, q);
    neighbour::Settled s;
    while (n.cache.next_settled(s)) settle(host, s);
    expire_ids(host);
    while (n.cache.next_question(q)) ask(host, q);  // of what was just run
}

Nanos neighbours_deadline(const Host& host) {
    Nanos next = host.neighbours->cache.next_deadline();
    for (const HeldId& h : host.neighbours->ids) next = std::min(next, h.deadline);
    return host.neighbours->replies.empty() ? next : host.now;
}

void neighbours_forget(Host& host, uint32_t session) {
    Neighbours& n = *host.neighbours;
    std::erase_if(n.requests, [&](const HeldRequest& r) { return r.session == session; });
    std::erase_if(n.replies, [&](const HeldReply& r) { return r.session == session; });
    std::erase_if(n.ids, [&](const HeldId& h) { return h.session == session; });
}

void announce(Host& host, uint32_t device) {
    const DeviceConfig& d = host.devices[device];
    if (d.resolver != Resolver::own) return;
    for (const Gid& g : d.gids) {
        if (g.is_zero()) continue;
        neighbour::Frame frame;
        frame.port = device;
        neighbour::make_announcement(frame, {d.mac, g});
        send_frame(host, frame);
    }
}

}  // namespace roci::host
