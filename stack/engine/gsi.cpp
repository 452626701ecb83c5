// QP 1: frames for it go to the conductor, its MADs go out. Off the hot path: only frames whose QP number belongs to no QP come
// here.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/impl.hpp"

namespace roci::engine {

void Engine::Impl::take_management(uint32_t port, const wire::Packet& p) {
    constexpr uint8_t kUdSendOnly = wire::make_opcode(wire::Service::ud, wire::Operation::send_only);
    if (p.dest_qp != kGsiQpn) return counters.add(Counter::unknown_qp);
    const PortAddresses* own = shared.addresses.find(port);
    const bool ours = own != nullptr && std::find(own->gids.begin(), own->gids.end(), p.dest_gid()) != own->gids.end();
    const bool fits =
        p.opcode == kUdSendOnly && p.qkey == kGsiQkey && p.payload_length == kMadLength && (p.pkey & 0x7fff) == 0x7fff;
    if (!ours || !fits) return counters.add(Counter::gsi_refused);
    GsiFrame f;
    f.port = port;
    f.local = p.dest_gid();
    f.remote = p.source_gid();
    std::memcpy(f.remote_mac.bytes.data(), p.frame + 6, 6);
    f.source = p.src_qp;
    std::memcpy(f.mad.data(), p.payload, kMadLength);
    if (!shared.gsi[config.index]->push(f)) return counters.add(Counter::gsi_full);
    counters.add(Counter::gsi_received);
    const Event event{.kind = Event::Kind::gsi};
    if (!ctx.late_events.empty() || !events.push(event)) ctx.late_events.push_back(event);
}

int Engine::Impl::send_management(const GsiSend& m) {
    if (m.port >= ctx.outbox.size() || m.path.length == 0) return EINVAL;
    qp::Outbox& out = ctx.outbox[m.port];
    TxFrame* frame = out.acquire();
    if (frame == nullptr) return EAGAIN;
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(wire::Service::ud, wire::Operation::send_only);
    h.dest_qp = m.dest;
    h.psn = Psn(gsi_psn++);
    h.qkey = kGsiQkey;
    h.src_qp = kGsiQpn;
    uint8_t* payload = wire::begin_frame(frame->data, m.path, h, kMadLength);
    std::memcpy(payload, m.mad.data(), kMadLength);
    out.commit(frame->data, wire::finish_frame(frame->data, m.path, payload, kMadLength));
    counters.add(Counter::gsi_sent);
    return 0;
}

}  // namespace roci::engine
