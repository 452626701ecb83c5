#include "sim/puppet.hpp"

#include <cstring>

#include "sim/world.hpp"

namespace roci::sim {

Puppet::Puppet(World& world) : world_(world), mac_{{0x02, 0, 0, 0, 9, 1}} {
    const uint8_t a[4] = {10, 9, 0, 1};
    gid_ = Gid::from_ipv4(a);
    endpoint_ = world.net().add_endpoint(mac_, 1);
}

void Puppet::talk_to(const Peer& peer) {
    to_ = peer;
    wire::PathSpec s;
    s.source_mac = mac_;
    s.dest_mac = peer.mac;
    s.source_gid = gid_;
    s.dest_gid = peer.gid;
    path_ = wire::make_path(s);
}

std::vector<uint8_t> Puppet::build(uint8_t opcode, wire::TransportHeaders h, const std::vector<uint8_t>& payload) const {
    std::vector<uint8_t> frame(wire::kMaxOverhead + payload.size());
    h.opcode = opcode;
    if (h.dest_qp.value == 0) h.dest_qp = Qpn{to_.qpn};
    uint8_t* p = wire::begin_frame(frame.data(), path_, h, uint32_t(payload.size()));
    if (!payload.empty()) std::memcpy(p, payload.data(), payload.size());
    frame.resize(wire::finish_frame(frame.data(), path_, p, uint32_t(payload.size())));
    return frame;
}

void Puppet::send(wire::Operation op, wire::TransportHeaders h, const std::vector<uint8_t>& payload) {
    send_raw(build(wire::make_opcode(wire::Service::rc, op), h, payload));
}

void Puppet::send_ack(uint32_t psn, uint32_t msn, uint8_t syndrome) {
    wire::TransportHeaders h;
    h.psn = Psn(psn);
    h.msn = Msn{msn};
    h.syndrome = syndrome;
    send(wire::Operation::ack, h);
}

void Puppet::send_raw(const std::vector<uint8_t>& frame) {
    world_.net().transmit(endpoint_, frame.data(), uint32_t(frame.size()));
}

void Puppet::collect() {
    io::RxFrame f;
    SimPort& port = world_.net().port(endpoint_, 0);
    while (port.rx_burst(&f, 1) == 1) {
        Got& g = got_.emplace_back();
        g.when = world_.now();
        g.bytes.assign(f.data, f.data + f.length);
        const bool good = wire::parse(g.bytes.data(), f.length, g.packet) == wire::Verdict::ok;
        if (!good || (!knows_reports && g.packet.opcode == wire::kLossReportOpcode)) got_.pop_back();
        port.rx_free(&f, 1);
    }
}

std::vector<Puppet::Got> Puppet::listen(Nanos time) {
    const Nanos end = world_.now() + time;
    world_.run_until(
        [&] {
            collect();
            return world_.now() >= end;
        },
        time);
    collect();
    std::vector<Got> all(std::make_move_iterator(got_.begin()), std::make_move_iterator(got_.end()));
    got_.clear();
    return all;
}

std::optional<Puppet::Got> Puppet::next(Nanos at_most) {
    world_.run_until(
        [&] {
            collect();
            return !got_.empty();
        },
        at_most);
    if (got_.empty()) return std::nullopt;
    Got g = std::move(got_.front());
    got_.pop_front();
    return g;
}

void connect(Client& client, Qp& qp, Puppet& puppet, const PathOptions& o) {
    client.to_init(qp, o.access);
    client.to_rtr(qp, o, puppet.peer());
    client.to_rts(qp, o);
    puppet.talk_to(client.self(qp));
}

}  // namespace roci::sim
