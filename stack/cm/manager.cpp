// The functions that owners call, the tables of connections, and the timers.
#include "cm/manager.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/send.hpp"

namespace roci::cm {
namespace {

/// The manager first repeats a message after 1/2^kEarlyShift of the response time. Each further pause is 1.5 times as long as the
/// previous pause, up to the full response time. So a few lost messages cost little time, and a slow peer gets few repetitions.
/// The manager sends at most max_retries repetitions (IBA 12.7.27). If a DREQ stays unanswered, the manager gives up one pause
/// after the last repetition. If any other message stays unanswered, the manager gives up max_retries + 1 full response times
/// after the first transmission.
constexpr unsigned kEarlyShift = 5;

template <size_t N>
void copy_private(std::array<uint8_t, N>& to, std::span<const uint8_t> from) {
    std::copy_n(from.begin(), std::min(from.size(), N), to.begin());
}

/// Limits a value to the range of a three-bit field: values above 7 become 7, as in the kernel.
uint8_t three_bits(uint8_t count) { return std::min<uint8_t>(count, 7); }

Answered rejected_message(State s) { return s == State::rep_rcvd || s == State::rep_sent ? Answered::rep : Answered::req; }

}  // namespace

size_t Manager::PeerHash::operator()(const PeerKey& k) const {
    uint64_t high, low;
    std::memcpy(&high, &k.gid.bytes[0], 8);
    std::memcpy(&low, &k.gid.bytes[8], 8);
    uint64_t h = (high * 0x9e3779b97f4a7c15u) ^ low ^ (uint64_t{k.id} << 8 | k.space);
    h ^= h >> 31;
    return size_t(h * 0xbf58476d1ce4e5b9u);
}

// ---- tables ---------------------------------------------------------------------------------------------------------

Connection* Manager::get(uint32_t id) {
    const auto it = connections_.find(id);
    return it == connections_.end() ? nullptr : it->second.get();
}
const Connection* Manager::find(uint32_t id) const { return const_cast<Manager*>(this)->get(id); }

/// Removes the oldest connections without an owner until the limit permits another connection. Such connections only wait for a
/// DREP or for the end of TimeWait. Returns false if the limit still permits no other connection.
bool Manager::make_room() {
    while (connections_.size() >= config_.max_connections && !ending_.empty()) {
        Connection* c = get(ending_.front());
        ending_.pop_front();
        if (c != nullptr && !c->owned) erase(*c);
    }
    return connections_.size() < config_.max_connections;
}

/// Adds a connection without an owner to `ending_`. make_room() may remove the connections in this list.
void Manager::forget_later(const Connection& c) {
    // Removes entries at the front whose connections have ended.
    while (!ending_.empty() && !connections_.contains(ending_.front())) ending_.pop_front();
    ending_.push_back(c.id);
}

Connection* Manager::add(const Endpoint& peer) {
    if (!make_room()) {
        ++counters_.refused_full;
        return nullptr;
    }
    while (next_id_ == 0 || connections_.contains(next_id_)) ++next_id_;
    auto c = std::make_unique<Connection>();
    c->id = next_id_++;
    c->peer = peer;
    c->response_timeout = config_.response_timeout;
    c->max_retries = config_.max_retries;
    Connection* raw = c.get();
    connections_.emplace(raw->id, std::move(c));
    return raw;
}

void Manager::pair(Connection& c, uint32_t remote_id, uint32_t remote_qpn) {
    c.remote_id = remote_id;
    c.remote_qpn = remote_qpn;
    c.paired = true;
    peers_[{c.peer.remote, remote_id, uint8_t(c.datagram ? kSidr : kCommId)}] = c.id;
    if (remote_qpn != 0) peers_[{c.peer.remote, remote_qpn, kQpn}] = c.id;
}

/// Allows the peer to use the QP number for another connection.
void Manager::unpair_qpn(Connection& c) {
    const auto it = peers_.find({c.peer.remote, c.remote_qpn, kQpn});
    if (it != peers_.end() && it->second == c.id) peers_.erase(it);
}

void Manager::erase(Connection& c) {
    set_timer(c, kNever);
    if (c.paired) {
        unpair_qpn(c);
        const auto it = peers_.find({c.peer.remote, c.remote_id, uint8_t(c.datagram ? kSidr : kCommId)});
        if (it != peers_.end() && it->second == c.id) peers_.erase(it);
    }
    connections_.erase(c.id);
}

/// Ends the connection: stops the timer, releases the peer's QP number, and sets the state to idle. Erases a connection without
/// an owner.
void Manager::end(Connection& c) {
    stop_repeating(c);
    c.state = State::idle;
    if (c.paired) unpair_qpn(c);
    if (!c.owned) erase(c);
}

// ---- timers ---------------------------------------------------------------------------------------------------------

void Manager::set_timer(Connection& c, Nanos deadline) {
    if (c.deadline != kNever) timers_.erase({c.deadline, c.id});
    c.deadline = deadline;
    if (deadline != kNever) timers_.insert({deadline, c.id});
}

void Manager::repeat_until_answered(Connection& c, Nanos now) {
    const Nanos unit = response_time(c.response_timeout);
    c.interval = std::max<Nanos>(unit >> kEarlyShift, 1);
    c.repeats_left = c.max_retries;
    c.give_up = now + unit * (c.max_retries + 1u);
    set_timer(c, now + c.interval);
}
void Manager::stop_repeating(Connection& c) {
    set_timer(c, kNever);
    c.give_up = kNever;
}

void Manager::advance(Nanos now) {
    while (!timers_.empty() && timers_.begin()->first <= now) {
        Connection* c = get(timers_.begin()->second);
        set_timer(*c, kNever);
        expire(*c, now);
    }
}

void Manager::expire(Connection& c, Nanos now) {
    if (c.state == State::timewait) {
        if (!c.datagram) raise(c, Event::Kind::timewait_exit);
        return end(c);
    }
    if (now >= c.give_up) return give_up(c, now);
    // After the last repetition, a DREQ without a reply ends the connection now. For any other message, the manager waits until
    // give_up.
    if (c.repeats_left == 0) return c.state == State::dreq_sent ? give_up(c, now) : set_timer(c, c.give_up);
    --c.repeats_left;
    ++counters_.repeated;
    transmit(c.peer, c.last);
    c.interval = std::min(c.interval + c.interval / 2, response_time(c.response_timeout));
    set_timer(c, std::min(now + c.interval, c.give_up));
}

void Manager::give_up(Connection& c, Nanos now) {
    ++counters_.timeouts;
    if (c.state == State::dreq_sent) {  // a missing DREP has the effect of a DREP (IBA 12.9.7.1.2)
        raise(c, Event::Kind::gone);
        return enter_timewait(c, now);
    }
    if (!c.datagram) send_rej(c, rejected_message(c.state), Reason::timeout);
    raise(c, Event::Kind::unreachable);
    end(c);
}

/// Enters TimeWait (IBA 12.9.8.4). TimeWait lasts until the network can contain no packet of the connection any more.
void Manager::enter_timewait(Connection& c, Nanos now) {
    stop_repeating(c);
    c.state = State::timewait;
    unpair_qpn(c);
    const uint8_t ack = std::clamp<uint8_t>(c.req.primary.ack_timeout, 1, 20);
    set_timer(c, now + response_time(ack) * 2);
}

// ---- outgoing messages and events -----------------------------------------------------------------------------------

void Manager::transmit(const Endpoint& to, const Mad& mad) {
    Header h;
    if (parse_header(mad, h)) ++counters_.sent[size_t(h.attribute) - size_t(Attribute::req)];
    messages_.push_back({to, kGsiQpn, mad});
}

void Manager::send_rej(Connection& c, Answered message, Reason reason, std::span<const uint8_t> private_data) {
    Rej rej;
    rej.local_comm_id = c.id;
    rej.remote_comm_id = c.remote_id;
    rej.message = message;
    rej.reason = reason;
    if (reason == Reason::timeout) {  // the REJ includes the local GUID, because the peer may not know the local ID (table 112)
        const uint64_t guid = c.active ? c.req.ca_guid : c.rep.ca_guid;
        rej.info_length = 8;
        for (unsigned i = 0; i < 8; ++i) rej.info[i] = uint8_t(guid >> (56 - 8 * i));
    }
    copy_private(rej.private_data, private_data);
    send(c, rej);
}

void Manager::send_dreq(Connection& c, Nanos now) {
    Dreq dreq;
    dreq.local_comm_id = c.id;
    dreq.remote_comm_id = c.remote_id;
    dreq.remote_qpn = c.remote_qpn;
    send(c, dreq);
    c.state = State::dreq_sent;
    repeat_until_answered(c, now);
}

void Manager::send_drep(Connection& c) {
    Drep drep;
    drep.local_comm_id = c.id;
    drep.remote_comm_id = c.remote_id;
    send(c, drep);
}

void Manager::raise(const Connection& c, Event::Kind kind, uint16_t reason, std::span<const uint8_t> private_data) {
    if (!c.owned) return;
    Event e;
    e.kind = kind;
    e.connection = c.id;
    e.owner = c.owner;
    e.reason = reason;
    e.private_data.assign(private_data.begin(), private_data.end());
    events_.push_back(std::move(e));
}

bool Manager::next_message(Outgoing& out) {
    if (messages_.empty()) return false;
    out = messages_.front();
    messages_.pop_front();
    return true;
}
bool Manager::next_event(Event& out) {
    if (events_.empty()) return false;
    out = std::move(events_.front());
    events_.pop_front();
    return true;
}

// ---- calls of owners ------------------------------------------------------------------------------------------------

uint32_t Manager::listen(const Listener& listener) {
    listeners_[listener.service_id].emplace_back(++last_listener_, listener);
    return last_listener_;
}
void Manager::unlisten(uint64_t service_id, uint32_t number) {
    const auto it = listeners_.find(service_id);
    if (it == listeners_.end()) return;
    std::erase_if(it->second, [&](const auto& l) { return l.first == number; });
    if (it->second.empty()) listeners_.erase(it);
}

uint32_t Manager::connect(const ConnectSpec& s, Nanos now) {
    Connection* c = add(s.to);
    if (c == nullptr) return 0;
    c->active = true;
    c->owner = s.owner;
    c->transaction = c->id;
    c->local_qpn = s.qpn;
    Req& r = c->req;
    r.local_comm_id = c->id;
    r.service_id = s.service_id;
    r.ca_guid = s.ca_guid;
    r.qpn = s.qpn;
    r.psn = s.psn & kMask24;
    r.service = s.service;
    r.extended_transport = s.extended_transport;
    r.responder_resources = s.responder_resources;
    r.initiator_depth = s.initiator_depth;
    r.remote_response_timeout = r.local_response_timeout = config_.response_timeout;
    r.flow_control = s.flow_control;
    r.retry_count = three_bits(s.retry_count);
    r.rnr_retry_count = three_bits(s.rnr_retry_count);
    r.mtu = s.mtu;
    r.max_cm_retries = config_.max_retries;
    r.srq = s.srq;
    r.primary.local_gid = s.to.local;
    r.primary.remote_gid = s.to.remote;
    r.primary.flow_label = s.flow_label;
    r.primary.traffic_class = s.to.traffic_class;
    r.primary.hop_limit = s.hop_limit;
    r.primary.ack_timeout = s.ack_timeout;
    r.private_data = s.private_data;
    c->state = State::req_sent;
    send(*c, r);
    repeat_until_answered(*c, now);
    return c->id;
}

int Manager::accept(uint32_t id, const AcceptSpec& s, Nanos now) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    if (c->state != State::req_rcvd) return EINVAL;
    c->local_qpn = s.qpn;
    Rep& r = c->rep;
    r.local_comm_id = c->id;
    r.remote_comm_id = c->remote_id;
    r.qpn = s.qpn;
    r.psn = s.psn & kMask24;
    r.responder_resources = s.responder_resources;
    r.initiator_depth = s.initiator_depth;
    r.flow_control = s.flow_control;
    r.rnr_retry_count = three_bits(s.rnr_retry_count);
    r.srq = s.srq;
    r.ca_guid = s.ca_guid;
    r.private_data = s.private_data;
    c->state = State::rep_sent;
    send(*c, r);
    repeat_until_answered(*c, now);
    return 0;
}

int Manager::ready(uint32_t id, Nanos) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    if (c->state != State::rep_rcvd) return EINVAL;
    Rtu rtu;
    rtu.local_comm_id = c->id;
    rtu.remote_comm_id = c->remote_id;
    send(*c, rtu);
    c->state = State::established;
    return 0;
}

int Manager::traffic_seen(uint32_t id, Nanos) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    if (c->state == State::established) return EISCONN;
    if (c->state != State::rep_sent) return EINVAL;
    stop_repeating(*c);
    c->state = State::established;
    raise(*c, Event::Kind::established);
    return 0;
}

int Manager::reject(uint32_t id, Reason reason, std::span<const uint8_t> private_data, Nanos now) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    const bool can = c->state == State::req_rcvd || c->state == State::rep_rcvd || c->state == State::rep_sent;
    if (!can) return EINVAL;
    send_rej(*c, rejected_message(c->state), reason, private_data);
    const bool keep = c->state != State::rep_rcvd;  // the receiver of the REQ keeps the REJ for a repeated REQ
    stop_repeating(*c);
    unpair_qpn(*c);
    if (!keep) return end(*c), 0;
    // For the owner, the connection has ended. So the manager keeps the connection without an owner.
    c->state = State::timewait;
    c->owned = false;
    forget_later(*c);
    set_timer(*c, now + response_time(c->req.local_response_timeout));
    return 0;
}

int Manager::disconnect(uint32_t id, Nanos now) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    switch (c->state) {
        case State::established:
        case State::rep_sent:
            send_dreq(*c, now);
            return 0;
        case State::dreq_rcvd:
            send_drep(*c);
            enter_timewait(*c, now);
            return 0;
        default:
            return EINVAL;
    }
}

void Manager::set_owner(uint32_t id, uint64_t owner) {
    if (Connection* c = get(id)) c->owner = owner;
}

void Manager::destroy(uint32_t id, Nanos now) {
    Connection* c = get(id);
    if (c == nullptr || !c->owned) return;
    std::erase_if(events_, [id](const Event& e) { return e.connection == id; });
    switch (c->state) {
        case State::req_sent:
            send_rej(*c, Answered::req, Reason::timeout);
            break;
        case State::req_rcvd:
        case State::rep_rcvd:
            reject(id, Reason::consumer, {}, now);
            break;
        case State::sidr_req_rcvd:
            answer_service(id, SidrStatus::rejected, 0, 0, {}, now);
            break;
        case State::established:
        case State::rep_sent:
        case State::dreq_rcvd:
            disconnect(id, now);
            break;
        default:
            break;
    }
    c = get(id);
    if (c == nullptr || !c->owned) return;
    c->owned = false;
    if (c->state != State::dreq_sent && c->state != State::timewait) return erase(*c);
    forget_later(*c);
}

}  // namespace roci::cm
