// Service ID resolution (IBA 12.11). A program sends a SIDR_REQ to get the QP number of a datagram service.
#include <algorithm>
#include <cerrno>

#include "cm/send.hpp"

namespace roci::cm {

uint32_t Manager::resolve_service(const SidrSpec& s, Nanos now) {
    Connection* c = add(s.to);
    if (c == nullptr) return 0;
    c->active = c->datagram = true;
    c->owner = s.owner;
    c->transaction = c->id;
    c->sidr_req.request_id = c->id;
    c->sidr_req.service_id = s.service_id;
    c->sidr_req.private_data = s.private_data;
    c->state = State::sidr_req_sent;
    send(*c, c->sidr_req);
    repeat_until_answered(*c, now);
    return c->id;
}

int Manager::answer_service(uint32_t id, SidrStatus status, uint32_t qpn, uint32_t qkey, std::span<const uint8_t> private_data,
                            Nanos now) {
    Connection* c = get(id);
    if (c == nullptr) return ENOENT;
    if (c->state != State::sidr_req_rcvd) return EINVAL;
    SidrRep rep;
    rep.request_id = c->remote_id;
    rep.status = status;
    rep.service_id = c->sidr_req.service_id;
    rep.qpn = qpn;
    rep.qkey = qkey;
    std::copy_n(private_data.begin(), std::min(private_data.size(), rep.private_data.size()), rep.private_data.begin());
    send(*c, rep);
    // The connection remains for some time, so that a repeated SIDR_REQ gets the same SIDR_REP.
    c->state = State::timewait;
    set_timer(*c, now + response_time(config_.response_timeout));
    return 0;
}

void Manager::on_sidr_req(const Incoming& in, uint64_t tid, Nanos) {
    const SidrReq req = decode<SidrReq>(in.mad);
    if (const auto it = peers_.find({in.from.remote, req.request_id, kSidr}); it != peers_.end()) {
        ++counters_.duplicates;
        Connection& c = *get(it->second);
        if (c.state == State::timewait) transmit(c.peer, c.last);
        return;
    }
    const auto refuse = [&](SidrStatus status) {
        SidrRep rep;
        rep.request_id = req.request_id;
        rep.status = status;
        rep.service_id = req.service_id;
        transmit(in.from, encode(tid, rep));
    };
    const Listener* listener = find_listener(req.service_id, in, req.private_data);
    if (listener == nullptr) {
        ++counters_.refused_no_listener;
        return refuse(SidrStatus::invalid_service_id);
    }
    Connection* c = add(in.from);
    if (c == nullptr) return refuse(SidrStatus::no_qp);
    c->datagram = true;
    c->transaction = tid;
    c->owner = listener->owner;
    c->sidr_req = req;
    c->state = State::sidr_req_rcvd;
    pair(*c, req.request_id, 0);
    raise(*c, Event::Kind::connect_request, 0, req.private_data);
}

void Manager::on_sidr_rep(const Incoming& in, Nanos) {
    const SidrRep rep = decode<SidrRep>(in.mad);
    Connection* c = get(rep.request_id);
    if (c == nullptr || !c->datagram || c->state != State::sidr_req_sent || c->peer.remote != in.from.remote) {
        ++counters_.unknown;
        return;
    }
    raise(*c, Event::Kind::sidr_reply, uint16_t(rep.status), rep.private_data);
    if (c->owned) {
        events_.back().qpn = rep.qpn;
        events_.back().qkey = rep.qkey;
    }
    end(*c);
}

}  // namespace roci::cm
