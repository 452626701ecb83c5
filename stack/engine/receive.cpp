// Receives bursts of frames: parses the frames, looks up their QPs, then executes the packets. Passes frames for QPs of another
// engine to that engine.
#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/impl.hpp"
#include "mem/prefetch.hpp"
#include "qp/reorder.hpp"

namespace roci::engine {
namespace {

/// Returns true if the frame's destination is an address of the datagram QP's port, or a multicast group that the QP is
/// attached to.
bool for_this_port(const qp::Shared& shared, uint32_t port, const wire::Packet& p) {
    if (p.dest_qp.value == io::kMulticastQpn) return true;  // the QP was found by its group
    const io::PortAddresses* own = shared.addresses.find(port);
    return own != nullptr && std::find(own->gids.begin(), own->gids.end(), p.dest_gid()) != own->gids.end();
}

/// Returns true if the frame comes from the peer of a connected QP. A connected QP accepts no other frames.
bool from_peer(const qp::Qp& qp, const wire::Packet& p) { return engine::from_peer(qp.path, p); }

/// Returns true if the frame has the device's VLAN, or if neither the frame nor the QP's path has a tag.
bool same_vlan(const qp::Shared& shared, const qp::Qp& qp, const wire::Packet& p) {
    const bool untagged = p.l3 - p.frame == wire::kEthLength;
    if (qp.path.length != 0 && qp.path.l3_offset == wire::kEthLength && untagged) return true;
    const io::PortAddresses* own = shared.addresses.find(qp.spec.port);
    return own != nullptr && own->vlan == wire::vlan_id(p.frame);
}

/// A batch ends at the frame with which the batch reaches this number of bytes. The frames of a batch are parsed first and
/// executed afterwards. Payloads must still be in the nearest cache when they are copied, so a batch must be small.
constexpr uint32_t kBatchBytes = 8 << 10;

bool receives(qp::State s) { return s != qp::State::reset && s != qp::State::init && s != qp::State::err; }

[[gnu::cold, gnu::noinline]] bool refuse(Engine::Impl& e, Counter why) {
    e.counters.add(why);
    return false;
}

/// Performs the checks that precede the checks of requester and responder (IBA 9.6.1): service, partition, state, VLAN and
/// address. If a check fails, counts the frame and returns false, and the frame is silently dropped.
bool acceptable(Engine::Impl& e, const qp::Qp& qp, const wire::Packet& p) {
    const bool datagram = qp.spec.type == qp::Type::ud;
    if (qp::service_of(qp.spec.type) != wire::service_of(p.opcode)) return refuse(e, Counter::wrong_service);
    if ((p.pkey & 0x7fff) != 0x7fff) return refuse(e, Counter::wrong_pkey);
    // An XRC initiator receives no requests, and an XRC target receives no responses (annex A14).
    const qp::Type deaf = p.info->has(wire::kRequest) ? qp::Type::xrc_send : qp::Type::xrc_recv;
    if (qp.spec.type == deaf) return refuse(e, Counter::wrong_service);
    if (!receives(qp.state)) return refuse(e, Counter::wrong_state);
    if (!same_vlan(e.shared, qp, p)) return refuse(e, Counter::wrong_vlan);
    if (datagram ? !for_this_port(e.shared, qp.spec.port, p) : !from_peer(qp, p)) return refuse(e, Counter::wrong_address);
    return true;
}

constexpr uint8_t kCongestionExperienced = 3;

/// Handles a congestion notification (CNP). Accepts a CNP only from the QP's peer, because any host could send CNPs.
[[gnu::noinline]] void take_notification(Engine::Impl& e, qp::Qp& qp, const wire::Packet& p) {
    const bool known = qp.spec.type != qp::Type::ud && from_peer(qp, p) && same_vlan(e.shared, qp, p);
    e.counters.add(known ? Counter::cnp_received : Counter::wrong_address);
    qp::bump(known ? e.ctx.device(qp).cnp_received : e.ctx.device(qp).cnp_ignored);
    if (!known) return;
    qp::Requester& rq = qp.requester;
    cc::on_cnp(rq.congestion, qp.adaptation, e.ctx.limits(qp), e.ctx.now, rq.round_trip.smoothed());
}

/// Handles a loss report or an inquiry. Accepts such a packet only from the peer of a reliable connection.
[[gnu::noinline]] void take_report(Engine::Impl& e, qp::Qp& qp, const wire::Packet& p) {
    const qp::Type type = qp.spec.type;
    const bool reliable = type == qp::Type::rc || type == qp::Type::xrc_send || type == qp::Type::xrc_recv;
    if (!reliable) return e.counters.add(Counter::wrong_service);
    if (!receives(qp.state)) return e.counters.add(Counter::wrong_state);
    if (!from_peer(qp, p) || !same_vlan(e.shared, qp, p)) return e.counters.add(Counter::wrong_address);
    qp::receive_report(e.ctx, qp, p);
}

/// Counts a frame that is marked Congestion Experienced. Sends a CNP only for reliable QPs, because UC and UD have no congestion
/// control.
[[gnu::noinline]] void take_mark(Engine::Impl& e, qp::Qp& qp) {
    e.counters.add(Counter::ecn_marked);
    qp::bump(e.ctx.device(qp).ecn_marked);
    const bool reliable = qp.spec.type != qp::Type::ud && qp.spec.type != qp::Type::uc && qp.path.length != 0;
    if (!reliable || !cc::take_mark(qp.adaptation, e.ctx.limits(qp), e.ctx.now)) return;
    if (!qp::send_notification(e.ctx, qp)) return;
    e.counters.add(Counter::cnp_sent);
    qp::bump(e.ctx.device(qp).cnp_sent);
}

void dispatch(Engine::Impl& e, qp::Qp& qp, const wire::Packet& p) {
    if (!p.info->has(wire::kRequest | wire::kResponse)) [[unlikely]]
        return p.opcode == wire::kCnpOpcode ? take_notification(e, qp, p) : take_report(e, qp, p);
    if (!acceptable(e, qp, p)) return;
    if (p.ecn == kCongestionExperienced) [[unlikely]]
        take_mark(e, qp);
    if (p.payload_length > qp.mtu) [[unlikely]]
        e.counters.add(Counter::over_path_mtu);
    bump(qp.counters.rx_packets);
    bump(qp.counters.rx_bytes, p.payload_length);
    if (qp.spec.type == qp::Type::ud) return qp::receive_datagram(e.ctx, qp, p);
    if (p.info->has(wire::kRequest)) return qp::receive_request(e.ctx, qp, p);
    qp::receive_response(e.ctx, qp, p);
}

/// Passes a frame to another engine without copying. Returns true if the ring of that engine had room. take_back() later
/// receives the frame from that engine.
bool hand_over(Engine::Impl& e, uint32_t to, uint32_t port, const io::RxFrame& frame, const wire::Packet& p) {
    io::HandoverLane& lane = e.shared.handover->lane(e.config.index, to);
    if (lane.away == io::HandoverLane::kSize || !lane.there.push({frame, port, p}))
        return e.counters.add(Counter::handover_full), false;
    ++lane.away;
    e.wake_mask |= 1u << to;
    e.counters.add(Counter::handed_over);
    return true;
}

/// Returns a packet whose pointers point to `to`, a copy of the frame.
wire::Packet moved(const wire::Packet& p, const uint8_t* to) {
    wire::Packet q = p;
    q.frame = to;
    q.l3 = to + (p.l3 - p.frame);
    q.payload = to + (p.payload - p.frame);
    return q;
}

/// Passes a copy of a multicast frame to another engine, because each engine delivers only to its own QPs.
void hand_copy(Engine::Impl& e, uint32_t to, uint32_t port, const io::RxFrame& frame, const wire::Packet& p) {
    io::HandoverLane& lane = e.shared.handover->lane(e.config.index, to);
    uint8_t* buffer = lane.away == io::HandoverLane::kSize || frame.length > wire::kMaxFrame ? nullptr : e.copies.take();
    if (buffer == nullptr) return e.counters.add(Counter::handover_full);
    std::memcpy(buffer, frame.data, frame.length);
    if (!lane.there.push({{buffer, frame.length, nullptr}, port, moved(p, buffer), true})) {
        e.copies.give_back(buffer);
        return e.counters.add(Counter::handover_full);
    }
    ++lane.away;
    e.wake_mask |= 1u << to;
    e.counters.add(Counter::multicast_copies);
}

/// Delivers a packet to each QP of this engine that is attached to the group (IBA 10.5.2.1). Each QP consumes its own receive
/// WQE. Returns a mask of the other engines with attached QPs.
uint32_t deliver_to_group(Engine::Impl& e, uint32_t port, const wire::Packet& p) {
    const io::MulticastTable* table = e.shared.multicast.load(std::memory_order_acquire);
    const io::MulticastTable::Group* group = table != nullptr ? table->find(port, p.dest_gid()) : nullptr;
    if (group == nullptr) return e.counters.add(Counter::unknown_group), 0;
    uint32_t elsewhere = 0;
    for (const uint32_t qpn : group->qpns) {
        qp::Qp* qp = e.shared.qps.find(qpn);
        if (qp == nullptr || qp->spec.port != port) continue;
        if (qp->spec.engine == e.config.index)
            dispatch(e, *qp, p);
        else
            elsewhere |= 1u << qp->spec.engine;
    }
    return elsewhere;
}

void receive_multicast(Engine::Impl& e, uint32_t port, const io::RxFrame& frame, const wire::Packet& p) {
    e.counters.add(Counter::multicast);
    for (uint32_t others = deliver_to_group(e, port, p); others != 0; others &= others - 1)
        hand_copy(e, uint32_t(std::countr_zero(others)), port, frame, p);
}

void take_back(Engine::Impl& e, io::HandoverLane& lane) {
    io::HandedFrame item;
    while (lane.away != 0 && lane.back.pop(item)) {
        --lane.away;
        if (item.copy) {
            e.copies.give_back(const_cast<uint8_t*>(item.frame.data));
            continue;
        }
        e.ports[item.port]->rx_free(&item.frame, 1);
    }
}

bool take_in(Engine::Impl& e, io::HandoverLane& lane) {
    io::HandedFrame item;
    uint32_t n = 0;
    for (; n < e.config.rx_burst && lane.there.pop(item); ++n) {
        qp::Qp* qp = e.shared.qps.find(item.packet.dest_qp.value);
        if (item.copy) {
            deliver_to_group(e, item.port, item.packet);
        } else if (qp != nullptr && qp->spec.engine == e.config.index && qp->spec.port == item.port)
            dispatch(e, *qp, item.packet);
        lane.back.push(item);
    }
    return n != 0;
}

[[gnu::cold, gnu::noinline]] void count_refused(Engine::Impl& e, uint32_t port, wire::Verdict v) {
    e.counters.add(v);
    if (v == wire::Verdict::not_roce) return;
    qp::DeviceCounters& device = *e.ctx.devices[port];
    qp::bump(device.rx_errors);
    if (v == wire::Verdict::bad_icrc) qp::bump(device.icrc_errors);
}

/// Checks the ICRC of an unchecked packet, unless the packet's QP checks it later (qp::checked_later). Returns bad_icrc if the
/// ICRC is wrong, and ok otherwise.
[[gnu::noinline]] wire::Verdict check_icrc(const Engine::Impl& e, const qp::Qp* owner, wire::Packet& p) {
    const bool own = owner != nullptr && owner->spec.engine == e.config.index;
    if (own && qp::checked_later(*owner, p)) return wire::Verdict::ok;
    p.unchecked = false;
    return wire::icrc_right(p) ? wire::Verdict::ok : wire::Verdict::bad_icrc;
}

}  // namespace

/// Prefetches data for the packet. If many QPs are active, prefetches the QP. If few QPs are active, the QP is probably in the
/// cache already, so the function prefetches the responder and, for a SEND, the next receive WQE.
void Engine::Impl::ask_for_state(const qp::Qp& qp, const wire::Packet& p) const {
    if (crowded()) return qp::prefetch_basics(qp);
    __builtin_prefetch(&qp.responder);
    if (!p.info->has(wire::kSend) || qp.spec.engine != config.index) return;
    const qp::Srq* srq = qp.spec.srq;
    const rings::RqView& rq = srq != nullptr ? srq->rq : qp.spec.rq;
    const rings::RqCursor& at = srq != nullptr ? srq->cursor : qp.rq_cursor;
    if (rq.depth == 0) return;
    if (at.seen == at.consumed) __builtin_prefetch(rq.shared);
    __builtin_prefetch(rq.slot(at.consumed));
}

/// Parses frames[first, end) and looks up their QPs. Passes frames for unknown QPs and frames other than RoCE to gsi.cpp.
void Engine::Impl::parse_batch(uint32_t port, unsigned first, unsigned end) {
    ROCI_STAGE(lookup);
    const bool check = ctx.reorder == nullptr || ctx.reorder->keepers == 0;  // if no requests are kept, no ICRC is checked later
    for (unsigned i = first; i < end; ++i) {
        wire::Verdict v = wire::parse(frames[i].data, frames[i].length, packets[i], check, frames[i].ip_checksum, frames[i].icrc);
        owners[i] = v == wire::Verdict::ok ? shared.qps.find(packets[i].dest_qp.value) : nullptr;
        if (owners[i] != nullptr) ask_for_state(*owners[i], packets[i]);
        if (v == wire::Verdict::ok && packets[i].unchecked) [[unlikely]]
            v = check_icrc(*this, owners[i], packets[i]);
        if (v != wire::Verdict::ok) [[unlikely]] {
            count_refused(*this, port, v);
            owners[i] = nullptr;
        }
        if (v == wire::Verdict::ok && owners[i] == nullptr && packets[i].dest_qp.value != io::kMulticastQpn)
            take_management(port, packets[i]);
        if (v == wire::Verdict::not_roce) take_other(port, frames[i]);
        if (v != wire::Verdict::ok) packets[i].dest_qp = {};
    }
}

/// Prefetches the data that the packets need. Called between parsing and execution while many QPs are active. Each step is
/// executed for all packets before the next step begins.
void Engine::Impl::fetch_ahead(unsigned first, unsigned end) {
    ROCI_STAGE(ahead);
    const auto each = [&](auto step) {
        const qp::Qp* before = nullptr;  // skips further packets of a QP, which usually use the same memory
        for (unsigned i = first; i < end; ++i) {
            if (owners[i] != nullptr && owners[i] != before) step(*owners[i], packets[i]);
            before = owners[i];
        }
    };
    each([&](const qp::Qp& qp, const wire::Packet& p) {
        qp::prefetch_path(qp);
        if (p.info->has(wire::kRequest))
            qp::prefetch_responder(qp);
        else
            qp::prefetch_requester(qp);
        mem::prefetch<0>(shared.keys, p.rkey, p.va);
    });
    each([&](const qp::Qp&, const wire::Packet& p) { mem::prefetch<1>(shared.keys, p.rkey, p.va); });
    each([&](const qp::Qp&, const wire::Packet& p) { mem::prefetch<2>(shared.keys, p.rkey, p.va); });
}

/// Executes frames[first, end). Moves the frames that are no longer needed to the places from frames[done] on. Returns the new
/// `done`.
unsigned Engine::Impl::execute_batch(uint32_t port, unsigned first, unsigned end, unsigned done) {
    ROCI_STAGE(lookup);
    for (unsigned i = first; i < end; ++i) {
        qp::Qp* qp = owners[i];
        const io::RxFrame frame = frames[i];
        if (packets[i].dest_qp.value == io::kMulticastQpn) {
            receive_multicast(*this, port, frame, packets[i]);
        } else if (qp != nullptr && qp->spec.port != port) {
            counters.add(Counter::unknown_qp);
        } else if (qp != nullptr && qp->spec.engine != config.index) {
            if (hand_over(*this, qp->spec.engine, port, frame, packets[i])) continue;
        } else if (qp != nullptr && packets[i].unchecked && check_icrc(*this, qp, packets[i]) != wire::Verdict::ok) {
            count_refused(*this, port, wire::Verdict::bad_icrc);  // packets of the same batch have closed the gap meanwhile
        } else if (qp != nullptr) {
            ctx.arrival = {&frame, port};
            dispatch(*this, *qp, packets[i]);
            if (std::exchange(ctx.arrival.frame, nullptr) == nullptr) continue;  // the reorder pool keeps the frame
        }
        frames[done++] = frame;
    }
    ctx.completions.write_out();
    return done;
}

unsigned Engine::Impl::receive(uint32_t port) {
    ROCI_STAGE(receive);
    const unsigned n = ports[port]->rx_burst(frames.data(), config.rx_burst);
    if (n == 0) return 0;
    for (unsigned i = 0; i < n; ++i) __builtin_prefetch(frames[i].data);
    unsigned done = 0;  // frames[0, done) are to be returned to the port by this engine
    for (unsigned first = 0; first < n;) {
        unsigned end = first;
        uint32_t bytes = 0;
        for (; end < n && bytes < kBatchBytes; ++end) bytes += frames[end].length;
        bump(ctx.tallies[port].rx_frames, end - first);
        bump(ctx.tallies[port].rx_octets, bytes);
        parse_batch(port, first, end);
        if (crowded()) fetch_ahead(first, end);
        done = execute_batch(port, first, end, done);
        first = end;
    }
    ports[port]->rx_free(frames.data(), done);
    return n;
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
