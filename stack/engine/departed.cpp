#include <algorithm>
#include <cstring>

#include "engine/impl.hpp"

namespace roci::engine {

bool from_peer(const wire::PathTemplate& path, const wire::Packet& p) {
    if (path.length == 0 || path.ipv6 != p.ipv6) return false;
    const uint8_t* mine = path.bytes + path.l3_offset;
    if (p.ipv6) return std::memcmp(mine + 8, p.l3 + 24, 16) == 0 && std::memcmp(mine + 24, p.l3 + 8, 16) == 0;
    return std::memcmp(mine + 12, p.l3 + 16, 4) == 0 && std::memcmp(mine + 16, p.l3 + 12, 4) == 0;
}

void DepartedQps::add(const qp::Qp& qp, Nanos now) {
    const bool answers = qp.spec.type == qp::Type::rc || qp.spec.type == qp::Type::xrc_recv;
    const bool receives = qp.state == qp::State::rtr || qp.state == qp::State::rts || qp.state == qp::State::sqd;
    const qp::ReceiveSequence& sequence = qp.responder.sequence;
    if (!answers || !receives || qp.path.length == 0 || sequence.refused()) return;
    const auto before = std::ranges::find(qpns_, qp.spec.qpn);  // a removed QP that had the same number
    if (before != qpns_.end()) *before = Qpn{};
    qpns_[next_] = qp.spec.qpn;
    ring_[next_++] = {.dest = qp.dest,
                      .port = qp.spec.port,
                      .expected = sequence.expected(),
                      .msn = sequence.msn(),
                      .service = qp::service_of(qp.spec.type),
                      .until = now + kRemembered,
                      .path = qp.path};
}

const Departed* DepartedQps::answer_to(const wire::Packet& p, uint32_t port, Nanos now) {
    if (!p.info->has(wire::kSend | wire::kWrite) || p.info->has(wire::kAtomicWrite) || !p.ack_request) return nullptr;
    const auto found = std::ranges::find(qpns_, p.dest_qp);
    if (found == qpns_.end()) return nullptr;
    Departed* d = &ring_[size_t(found - qpns_.begin())];
    if (d->port != port || now >= d->until || d->answers == kMostAnswers) return nullptr;
    const bool valid = wire::service_of(p.opcode) == d->service && (p.pkey & 0x7fff) == 0x7fff && from_peer(d->path, p) &&
                       wire::vlan_id(d->path.bytes) == wire::vlan_id(p.frame);
    if (!valid || p.psn.distance_from(d->expected) >= 0) return nullptr;
    ++d->answers;
    return d;
}

bool Engine::Impl::acknowledge_again(uint32_t port, const wire::Packet& p) {
    const Departed* d = departed.answer_to(p, port, ctx.now);
    if (d == nullptr) return false;
    wire::TransportHeaders h;
    h.opcode = wire::make_opcode(d->service, wire::Operation::ack);
    h.dest_qp = d->dest;
    h.psn = d->expected - 1;
    h.syndrome = qp::make_syndrome(qp::AethKind::ack, qp::kNoCredits);
    h.msn = d->msn;
    if (!qp::send_headers(ctx, port, d->path, h, p.dest_qp.value)) return false;
    counters.add(Counter::acknowledged_again);
    return true;
}

}  // namespace roci::engine
