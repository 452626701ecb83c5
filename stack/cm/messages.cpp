// Handles received messages according to the state of the connection (IBA 12.9.7). All input comes from the network. A message
// changes a connection only if the IDs and the source GID of the message match the connection.
#include <algorithm>

#include "cm/send.hpp"

namespace roci::cm {

void Manager::receive(const Incoming& in, Nanos now) {
    Header h;
    if (!parse_header(in.mad, h)) {
        ++counters_.malformed;
        return;
    }
    const size_t index = size_t(h.attribute) - size_t(Attribute::req);
    if (index < std::size(counters_.received)) ++counters_.received[index];
    switch (h.attribute) {
        case Attribute::req:
            return on_req(in, h.transaction, now);
        case Attribute::mra:
            return on_mra(in, now);
        case Attribute::rej:
            return on_rej(in, now);
        case Attribute::rep:
            return on_rep(in, h.transaction, now);
        case Attribute::rtu:
            return on_rtu(in, now);
        case Attribute::dreq:
            return on_dreq(in, h.transaction, now);
        case Attribute::drep:
            return on_drep(in, now);
        case Attribute::sidr_req:
            return on_sidr_req(in, h.transaction, now);
        case Attribute::sidr_rep:
            return on_sidr_rep(in, now);
        default:
            ++counters_.unknown;  // messages without a handler: LAP and APR, because alternate paths are not supported
    }
}

/// Returns the connection with the local ID `id`. Returns nullptr if the connection does not exist, or if the sender's GID or ID
/// does not match. Compares the sender's ID only if the manager has stored the peer's ID.
Connection* Manager::named(uint32_t id, uint32_t remote_id, const Incoming& in) {
    Connection* c = get(id);
    const bool fits =
        c != nullptr && !c->datagram && c->peer.remote == in.from.remote && (!c->paired || c->remote_id == remote_id);
    if (!fits) {
        ++counters_.unknown;
        return nullptr;
    }
    return c;
}

const Listener* Manager::find_listener(uint64_t service_id, const Incoming& in, std::span<const uint8_t> private_data) const {
    const auto it = listeners_.find(service_id);
    if (it == listeners_.end()) return nullptr;
    Gid dest = in.from.local;
    if (const auto space = port_space_of(service_id); space && *space != PortSpace::ib) {
        const auto header = get_ip_header(private_data);
        if (!header) return nullptr;
        dest = header->dest;
    }
    const Listener* wide = nullptr;
    for (const auto& [number, l] : it->second) {
        if (l.port && *l.port != in.from.port) continue;
        if (l.address == dest) return &l;
        if (l.address.is_zero() && (dest.is_ipv4() ? l.ipv4 : l.ipv6)) wide = &l;
    }
    return wide;
}

// ---- REQ ------------------------------------------------------------------------------------------------------------

void Manager::on_req(const Incoming& in, uint64_t tid, Nanos now) {
    const Req req = decode<Req>(in.mad);
    if (const auto it = peers_.find({in.from.remote, req.local_comm_id, kCommId}); it != peers_.end()) {
        ++counters_.duplicates;
        return on_repeated_req(*get(it->second));
    }
    const auto refuse = [&](Reason reason) {
        Rej rej;
        rej.remote_comm_id = req.local_comm_id;
        rej.reason = reason;
        transmit(in.from, encode(tid, rej));
    };
    if (const auto it = peers_.find({in.from.remote, req.qpn, kQpn}); it != peers_.end()) {
        // The peer uses the same QP for a new connection, so the old connection has ended for the peer (IBA 12.9.8.3.1).
        ++counters_.stale;
        Connection* old = get(it->second);
        refuse(Reason::stale_connection);
        if (old->state == State::established || old->state == State::rep_sent) {
            raise(*old, Event::Kind::disconnected);
            send_dreq(*old, now);
            enter_timewait(*old, now);
        }
        return;
    }
    const Listener* listener = find_listener(req.service_id, in, req.private_data);
    if (listener == nullptr) {
        ++counters_.refused_no_listener;
        return refuse(Reason::invalid_service_id);
    }
    Connection* c = add(in.from);
    if (c == nullptr) return refuse(Reason::no_resources);
    c->transaction = tid;
    c->owner = listener->owner;
    c->req = req;
    c->peer.traffic_class = req.primary.traffic_class;
    c->response_timeout = std::min<uint8_t>(req.local_response_timeout, 24);
    c->max_retries = req.max_cm_retries;
    c->state = State::req_rcvd;
    pair(*c, req.local_comm_id, req.qpn);
    raise(*c, Event::Kind::connect_request, 0, req.private_data);
}

void Manager::on_repeated_req(Connection& c) {
    if (c.state == State::req_rcvd) {  // the program has not answered yet; the MRA extends the peer's timeout (12.9.8.6)
        Mra mra;
        mra.local_comm_id = c.id;
        mra.remote_comm_id = c.remote_id;
        mra.message = Answered::req;
        mra.service_timeout = config_.mra_timeout;
        transmit(c.peer, encode(c.transaction, mra));
        return;
    }
    Header h;
    const bool answered = parse_header(c.last, h) && (h.attribute == Attribute::rep || h.attribute == Attribute::rej);
    if (answered && (c.state == State::rep_sent || c.state == State::timewait)) {
        ++counters_.repeated;
        transmit(c.peer, c.last);
    }
}

// ---- answers --------------------------------------------------------------------------------------------------------

void Manager::on_mra(const Incoming& in, Nanos now) {
    const Mra mra = decode<Mra>(in.mad);
    Connection* c = get(mra.remote_comm_id);
    if (c == nullptr || c->peer.remote != in.from.remote) return;
    const bool fits = (c->state == State::req_sent && mra.message == Answered::req) ||
                      (c->state == State::rep_sent && mra.message == Answered::rep && c->remote_id == mra.local_comm_id);
    if (!fits) return;
    // The peer has received the message. So the manager waits for the service timeout of the MRA before it repeats the message.
    const Nanos pause = response_time(std::min<uint8_t>(mra.service_timeout, 26)) + response_time(c->response_timeout);
    c->interval = response_time(c->response_timeout);
    c->give_up = std::max(c->give_up, now + pause + c->interval);
    set_timer(*c, now + pause);
}

void Manager::on_rej(const Incoming& in, Nanos now) {
    const Rej rej = decode<Rej>(in.mad);
    Connection* c = get(rej.remote_comm_id);
    if (rej.remote_comm_id == 0) {  // the peer has not received the local ID, so the peer's ID identifies the connection
        const auto it = peers_.find({in.from.remote, rej.local_comm_id, kCommId});
        c = it != peers_.end() ? get(it->second) : nullptr;
    }
    const bool known = c != nullptr && !c->datagram && c->peer.remote == in.from.remote;
    if (!known || (c->paired && rej.local_comm_id != 0 && c->remote_id != rej.local_comm_id)) {
        ++counters_.unknown;
        return;
    }
    switch (c->state) {
        case State::req_sent:
        case State::req_rcvd:
        case State::rep_sent:
        case State::rep_rcvd:
            raise(*c, Event::Kind::rejected, uint16_t(rej.reason), rej.private_data);
            end(*c);
            break;
        case State::established:  // the peer timed out before the RTU arrived
        case State::dreq_sent:
            raise(*c, Event::Kind::disconnected);
            enter_timewait(*c, now);
            break;
        default:
            break;
    }
}

void Manager::on_rep(const Incoming& in, uint64_t tid, Nanos) {
    const Rep rep = decode<Rep>(in.mad);
    Connection* c = named(rep.remote_comm_id, rep.local_comm_id, in);
    if (c == nullptr || !c->active) {
        Rej rej;
        rej.local_comm_id = rep.remote_comm_id;
        rej.remote_comm_id = rep.local_comm_id;
        rej.message = Answered::rep;
        rej.reason = Reason::invalid_comm_id;
        transmit(in.from, encode(tid, rej));
        return;
    }
    if (c->state == State::established) {  // the RTU was lost
        ++counters_.duplicates;
        ++counters_.repeated;
        transmit(c->peer, c->last);
        return;
    }
    if (c->state == State::timewait || c->state == State::idle) {
        return send_rej(*c, Answered::rep, Reason::timeout);
    }
    if (c->state != State::req_sent) {
        ++counters_.duplicates;
        return;
    }
    stop_repeating(*c);
    c->rep = rep;
    pair(*c, rep.local_comm_id, rep.qpn);
    c->state = State::rep_rcvd;
    raise(*c, Event::Kind::reply, 0, rep.private_data);
}

void Manager::on_rtu(const Incoming& in, Nanos) {
    const Rtu rtu = decode<Rtu>(in.mad);
    Connection* c = named(rtu.remote_comm_id, rtu.local_comm_id, in);
    if (c == nullptr) return;
    if (c->state != State::rep_sent) {
        ++counters_.duplicates;
        return;
    }
    stop_repeating(*c);
    c->state = State::established;
    raise(*c, Event::Kind::established);  // the event has no private data, as in the kernel
}

// ---- disconnection --------------------------------------------------------------------------------------------------

void Manager::on_dreq(const Incoming& in, uint64_t tid, Nanos now) {
    const Dreq dreq = decode<Dreq>(in.mad);
    Connection* c = named(dreq.remote_comm_id, dreq.local_comm_id, in);
    if (c == nullptr || !c->paired) {  // the connection has ended; the peer still gets a DREP (12.9.8.3.2)
        Drep drep;
        drep.local_comm_id = dreq.remote_comm_id;
        drep.remote_comm_id = dreq.local_comm_id;
        transmit(in.from, encode(tid, drep));
        return;
    }
    if (dreq.remote_qpn != c->local_qpn) {
        ++counters_.unknown;
        return;
    }
    c->transaction = tid;
    switch (c->state) {
        case State::rep_sent:  // the RTU was lost, and the peer disconnects already
        case State::established:
            stop_repeating(*c);
            c->state = State::dreq_rcvd;
            raise(*c, Event::Kind::disconnected);
            break;
        case State::rep_rcvd:
            send_drep(*c);
            raise(*c, Event::Kind::rejected, uint16_t(Reason::consumer));
            end(*c);
            break;
        case State::dreq_sent:  // both ends sent a DREQ, so both ends send a DREP
            raise(*c, Event::Kind::disconnected);
            send_drep(*c);
            enter_timewait(*c, now);
            break;
        case State::timewait:
        case State::idle:
            ++counters_.duplicates;
            send_drep(*c);
            break;
        default:
            ++counters_.duplicates;
            break;
    }
}

void Manager::on_drep(const Incoming& in, Nanos now) {
    const Drep drep = decode<Drep>(in.mad);
    Connection* c = named(drep.remote_comm_id, drep.local_comm_id, in);
    if (c == nullptr || c->state != State::dreq_sent) return;
    raise(*c, Event::Kind::disconnected);
    enter_timewait(*c, now);
}

}  // namespace roci::cm
