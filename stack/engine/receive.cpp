// Frames in: a burst is parsed, then looked up, then executed; what belongs to another engine is handed over.
#include <algorithm>
#include <cstring>

#include "engine/impl.hpp"

namespace roci::engine {
namespace {

/// A datagram QP hears anybody who names one of its port's addresses.
bool for_this_port(const Shared& shared, uint32_t port, const wire::Packet& p) {
    const PortAddresses* own = shared.addresses.find(port);
    return own != nullptr && std::find(own->gids.begin(), own->gids.end(), p.dest_gid()) != own->gids.end();
}

/// A connected QP hears only its peer: source and destination of the frame are those of our path, reversed (A17.4.5).
bool from_peer(const qp::Qp& qp, const wire::Packet& p) {
    if (qp.path.length == 0 || qp.path.ipv6 != p.ipv6) return false;
    const uint8_t* mine = qp.path.bytes + qp.path.l3_offset;
    if (p.ipv6) return std::memcmp(mine + 8, p.l3 + 24, 16) == 0 && std::memcmp(mine + 24, p.l3 + 8, 16) == 0;
    return std::memcmp(mine + 12, p.l3 + 16, 4) == 0 && std::memcmp(mine + 16, p.l3 + 12, 4) == 0;
}

bool receives(qp::State s) { return s != qp::State::reset && s != qp::State::init && s != qp::State::err; }

/// The checks that come before any of a QP's own (IBA 9.6.1): service, partition, state, address. Counted and silent.
bool acceptable(Engine::Impl& e, const qp::Qp& qp, const wire::Packet& p) {
    Counters& counters = e.counters;
    const bool datagram = qp.spec.type == qp::Type::ud;
    if (qp::service_of(qp.spec.type) != wire::service_of(p.opcode)) return counters.add(Counter::wrong_service), false;
    if ((p.pkey & 0x7fff) != 0x7fff) return counters.add(Counter::wrong_pkey), false;
    if (!receives(qp.state)) return counters.add(Counter::wrong_state), false;
    if (datagram ? !for_this_port(e.shared, qp.spec.port, p) : !from_peer(qp, p)) return counters.add(Counter::wrong_address), false;
    return true;
}

void dispatch(Engine::Impl& e, qp::Qp& qp, const wire::Packet& p) {
    if (!acceptable(e, qp, p)) return;
    ++qp.counters.rx_packets;
    qp.counters.rx_bytes += p.payload_length;
    if (qp.spec.type == qp::Type::ud) return qp::receive_datagram(e.ctx, qp, p);
    if (p.info->has(wire::kRequest)) return qp::receive_request(e.ctx, qp, p);
    qp::receive_response(e.ctx, qp, p);
}

/// True: the frame is away and comes back later.
bool hand_over(Engine::Impl& e, uint32_t to, uint32_t port, const RxFrame& frame, const wire::Packet& p) {
    HandoverLane& lane = e.shared.handover->lane(e.config.index, to);
    if (lane.away == HandoverLane::kSize || !lane.there.push({frame, port, p})) return e.counters.add(Counter::handover_full), false;
    ++lane.away;
    e.wake_mask |= 1u << to;
    e.counters.add(Counter::handed_over);
    return true;
}

void take_back(Engine::Impl& e, HandoverLane& lane) {
    HandedFrame item;
    while (lane.away != 0 && lane.back.pop(item)) {
        --lane.away;
        e.ports[item.port]->rx_free(&item.frame, 1);
    }
}

bool take_in(Engine::Impl& e, HandoverLane& lane) {
    HandedFrame item;
    uint32_t n = 0;
    for (; n < e.config.rx_burst && lane.there.pop(item); ++n) {
        qp::Qp* qp = e.shared.qps.find(item.packet.dest_qp.value);
        if (qp != nullptr && qp->spec.engine == e.config.index && qp->spec.port == item.port) dispatch(e, *qp, item.packet);
        lane.back.push(item);
    }
    return n != 0;
}

}  // namespace

bool Engine::Impl::receive(uint32_t port) {
    const unsigned n = ports[port]->rx_burst(frames.data(), config.rx_burst);
    if (n == 0) return false;
    counters.add(Counter::rx_frames, n);
    for (unsigned i = 0; i < n; ++i) __builtin_prefetch(frames[i].data);
    for (unsigned i = 0; i < n; ++i) {
        const wire::Verdict v = wire::parse(frames[i].data, frames[i].length, packets[i]);
        counters.add(v);
        owners[i] = v == wire::Verdict::ok ? shared.qps.find(packets[i].dest_qp.value) : nullptr;
        if (owners[i] != nullptr) __builtin_prefetch(&owners[i]->responder);
        if (v == wire::Verdict::ok && owners[i] == nullptr) take_management(port, packets[i]);
    }
    unsigned done = 0;  // frames[0, done) are ours to give back
    for (unsigned i = 0; i < n; ++i) {
        qp::Qp* qp = owners[i];
        const RxFrame frame = frames[i];
        if (qp != nullptr && qp->spec.port != port) {
            counters.add(Counter::unknown_qp);
        } else if (qp != nullptr && qp->spec.engine != config.index) {
            if (hand_over(*this, qp->spec.engine, port, frame, packets[i])) continue;
        } else if (qp != nullptr) {
            dispatch(*this, *qp, packets[i]);
        }
        frames[done++] = frame;
    }
    ports[port]->rx_free(frames.data(), done);
    return true;
}

bool Engine::Impl::receive_handed_over() {
    bool any = false;
    if (shared.handover == nullptr) return false;
    for (uint32_t other = 0; other < shared.handover->engines(); ++other) {
        if (other == config.index) continue;
        take_back(*this, shared.handover->lane(config.index, other));
        any |= take_in(*this, shared.handover->lane(other, config.index));
    }
    return any;
}

bool Engine::Impl::inbox_waits() const {
    if (shared.handover == nullptr) return false;
    for (uint32_t other = 0; other < shared.handover->engines(); ++other)
        if (other != config.index && !shared.handover->lane(other, config.index).there.empty()) return true;
    return false;
}

}  // namespace roci::engine
