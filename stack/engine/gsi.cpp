// Passes frames for QP 1, ARP and similar frames to the conductor (rocid's control thread), and sends the conductor's MADs and
// frames. This code is not on the hot path. Received frames reach this code only if their QP number is unknown or if they are
// not RoCE.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "engine/impl.hpp"

namespace roci::engine {

void Engine::Impl::take_management(uint32_t port, const wire::Packet& p) {
    constexpr uint8_t kUdSendOnly = wire::make_opcode(wire::Service::ud, wire::Operation::send_only);
    if (p.dest_qp != io::kGsiQpn) {
        if (!acknowledge_again(port, p)) counters.add(Counter::unknown_qp);
        return;
    }
    const io::PortAddresses* own = shared.addresses.find(port);
    const bool ours = own != nullptr && own->vlan == wire::vlan_id(p.frame) &&
                      std::find(own->gids.begin(), own->gids.end(), p.dest_gid()) != own->gids.end();
    const bool fits =
        p.opcode == kUdSendOnly && p.qkey == io::kGsiQkey && p.payload_length == io::kMadLength && (p.pkey & 0x7fff) == 0x7fff;
    if (!ours || !fits) return counters.add(Counter::gsi_refused);
    io::GsiFrame f;
    f.port = port;
    f.local = p.dest_gid();
    f.remote = p.source_gid();
    std::memcpy(f.remote_mac.bytes.data(), p.frame + 6, 6);
    f.source = p.src_qp;
    std::memcpy(f.mad.data(), p.payload, io::kMadLength);
    if (!shared.gsi[config.index]->push(f)) return counters.add(Counter::gsi_full);
    counters.add(Counter::gsi_received);
    notify_conductor();
}

void Engine::Impl::notify_conductor() {
    const io::Event event{.kind = io::Event::Kind::gsi};
    if (!ctx.late_events.empty() || !events.push(event)) ctx.late_events.push_back(event);
}

namespace {

constexpr uint16_t kEtherArp = 0x0806;
constexpr uint32_t kMacs = 12;  // bytes of the two MAC addresses, before the VLAN tag
constexpr uint8_t kIcmp = 1, kIcmpV6 = 58, kUnreachable = 3, kUnreachableV6 = 1;

/// Returns true for ARP, ICMP and ICMPv6 frames. The check must be fast, because the engine may receive all frames of a kernel
/// interface. Sets `unreachable` for ICMP "unreachable". The caller only counts such a frame, because a connection ends only
/// when its own retries are exhausted (IBA 9.7.6.1.3).
bool concerns_port(const io::RxFrame& f, uint32_t tag, bool& unreachable) {
    if (f.length < wire::kEthLength + tag + wire::kIpv4Length + 8 || f.length - tag > neighbour::kMaxFrame) return false;
    const uint8_t* l3 = f.data + wire::kEthLength + tag;
    const auto type = load_be<uint16_t>(l3 - 2);
    if (type == wire::kEtherIpv4 && l3[9] == kIcmp) {
        unreachable = l3[(l3[0] & 0x0f) == 5 ? wire::kIpv4Length : 0] == kUnreachable;
        return true;
    }
    if (type == wire::kEtherIpv6 && f.length > wire::kEthLength + tag + wire::kIpv6Length && l3[6] == kIcmpV6) {
        unreachable = l3[wire::kIpv6Length] == kUnreachableV6;
        return true;
    }
    return type == kEtherArp;
}

}  // namespace

void Engine::Impl::take_other(uint32_t port, const io::RxFrame& frame) {
    bool unreachable = false;
    if (frame.length < wire::kEthLength + wire::kVlanLength) return;
    const bool tagged = load_be<uint16_t>(frame.data + kMacs) == wire::kEtherVlan;
    const uint32_t tag = tagged ? wire::kVlanLength : 0;
    if (!concerns_port(frame, tag, unreachable)) return;
    const io::PortAddresses* own = shared.addresses.find(port);
    if (own == nullptr || own->vlan != wire::vlan_id(frame.data)) return;
    if (unreachable) return counters.add(Counter::icmp_unreachable);
    if (!own->answers) return;
    neighbour::Frame copy;  // the copy has no VLAN tag, because the conductor has the VLAN of the port
    copy.port = port;
    copy.length = frame.length - tag;
    std::memcpy(copy.bytes.data(), frame.data, kMacs);
    std::memcpy(copy.bytes.data() + kMacs, frame.data + kMacs + tag, frame.length - kMacs - tag);
    if (!shared.frames[config.index]->push(copy)) return counters.add(Counter::other_full);
    counters.add(Counter::other_received);
    notify_conductor();
}

int Engine::Impl::send_other(const neighbour::Frame& f) {
    constexpr uint32_t kShortest = 60;  // the shortest Ethernet frame, without its checksum
    if (f.port >= ctx.outbox.size() || f.length == 0 || f.length > wire::kMaxFrame) return EINVAL;
    qp::Outbox& out = ctx.outbox[f.port];
    io::TxFrame* frame = out.acquire();
    if (frame == nullptr) return EAGAIN;
    const uint32_t length = std::max(f.length, kShortest);
    std::memset(frame->data, 0, length);
    std::memcpy(frame->data, f.bytes.data(), f.length);
    qp::commit_alone(ctx, f.port, frame->data, length, {}, 0);
    counters.add(Counter::other_sent);
    return 0;
}

int Engine::Impl::send_management(const io::GsiSend& m) {
    if (m.port >= ctx.outbox.size() || m.path.length == 0) return EINVAL;
    qp::Outbox& out = ctx.outbox[m.port];
    io::TxFrame* frame = out.acquire();
    if (frame == nullptr) return EAGAIN;
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(wire::Service::ud, wire::Operation::send_only);
    h.dest_qp = m.dest;
    h.psn = Psn(gsi_psn++);
    h.qkey = io::kGsiQkey;
    h.src_qp = io::kGsiQpn;
    uint8_t* payload = wire::begin_frame(frame->data, m.path, h, io::kMadLength);
    std::memcpy(payload, m.mad.data(), io::kMadLength);
    const uint32_t bytes = wire::finish_frame(frame->data, m.path, payload, io::kMadLength);
    qp::commit_alone(ctx, m.port, frame->data, bytes, m.path.left, 1);
    counters.add(Counter::gsi_sent);
    return 0;
}

}  // namespace roci::engine
