// Connects, accepts, rejects and disconnects ids, and returns the QP attributes of a connection.
#include <algorithm>

#include "host/paths/resolve.hpp"
#include "host/rdma_cm/service.hpp"
#include "qp/attributes.hpp"
#include "qp/state.hpp"

namespace roci::host::rdma_cm {
namespace {

constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kStateInit = 1, kStateRtr = 2, kStateRts = 3;
// Values of enum ibv_access_flags. As with Linux, both placement types of FLUSH are permitted to the peers of a connection. The
// rights of the memory regions decide.
constexpr uint32_t kRemoteWrite = 1 << 1, kRemoteRead = 1 << 2, kRemoteAtomic = 1 << 3, kFlush = 3 << 8;
constexpr uint32_t kCommEstablished = 4;  // value of IBV_EVENT_COMM_EST

cm::Endpoint endpoint_of(const CmId& id) { return {*id.device, id.local, id.remote, id.remote_mac, id.traffic_class}; }

Outcome check_private(const abi::CmParam& p, uint32_t most) {
    if (p.private_length > most) return fail(EINVAL, "private data of {} bytes; {} fit", p.private_length, most);
    return done();
}

void set_types(cm::ConnectSpec& s, qp::Type type) {
    if (type == qp::Type::uc) s.service = cm::Service::uc;
    if (type != qp::Type::xrc_send && type != qp::Type::xrc_recv) return;
    s.service = cm::Service::extended;
    s.extended_transport = cm::kExtendedXrc;
}

/// Returns the path MTU of the id's device. If the peer is a device of this rocid with a smaller MTU, returns the MTU of the
/// peer.
uint32_t path_mtu(const State& state, const CmId& id) {
    uint32_t mtu = active_mtu(state.devices[*id.device]);
    for (const DeviceConfig& d : state.devices)
        if (has_gid(d, id.remote)) mtu = std::min(mtu, active_mtu(d));
    return mtu;
}

/// Fails with EACCES if the QP belongs to another user.
Outcome check_qpn(const Call& c, uint32_t qpn) {
    const qp::Qp* qp = c.state.shared.qps.find(qpn & kMask24);
    const Session* owner = qp != nullptr ? c.state.find(qp::owner_of(*qp).session) : nullptr;
    if (owner != nullptr && owner->who.uid != c.session.who.uid)
        return fail(EACCES, "queue pair {} is of another user", qpn & kMask24);
    return done();
}

Outcome send_req(Call& c, CmId& id, const abi::CmParam& p) {
    if (Outcome o = check_private(p, cm::kReqRoom); o.failed()) return o;
    cm::ConnectSpec s;
    s.to = endpoint_of(id);
    s.service_id = cm::service_id(id.space, id.dest.port);
    s.ca_guid = guid_of(c.state.devices[*id.device].mac);
    s.qpn = p.qpn & kMask24;
    s.psn = id.psn;
    set_types(s, id.qp_type);
    s.responder_resources = p.responder_resources;
    s.initiator_depth = p.initiator_depth;
    s.retry_count = p.retry_count;
    s.rnr_retry_count = p.rnr_retry_count;
    s.flow_control = p.flow_control;
    s.srq = p.srq;
    s.mtu = uint8_t(path_mtu(c.state, id));
    s.ack_timeout = id.ack_timeout;
    s.hop_limit = kHopLimit;
    s.owner = uint64_t(c.session.id) << 32 | id.handle;
    cm::put_ip_header(s.private_data.data(), {id.source.port, id.local, id.remote});
    std::copy_n(p.private_data, p.private_length, &s.private_data[cm::kIpHeaderLength]);
    id.responder_resources = p.responder_resources;
    id.initiator_depth = p.initiator_depth;
    id.retry_count = std::min<uint8_t>(p.retry_count, 7);
    id.peer_rnr_retries = std::min<uint8_t>(p.rnr_retry_count, 7);
    id.connection = c.state.cm->manager.connect(s, c.state.now);
    return done();
}

Outcome send_sidr_req(Call& c, CmId& id, const abi::CmParam& p) {
    if (Outcome o = check_private(p, cm::kSidrReqRoom); o.failed()) return o;
    cm::SidrSpec s;
    s.to = endpoint_of(id);
    s.service_id = cm::service_id(id.space, id.dest.port);
    s.owner = uint64_t(c.session.id) << 32 | id.handle;
    cm::put_ip_header(s.private_data.data(), {id.source.port, id.local, id.remote});
    std::copy_n(p.private_data, p.private_length, &s.private_data[cm::kIpHeaderLength]);
    id.connection = c.state.cm->manager.resolve_service(s, c.state.now);
    return done();
}

Outcome send_rep(Call& c, CmId& id, const abi::CmParam& p) {
    cm::AcceptSpec s;
    if (Outcome o = check_private(p, uint32_t(s.private_data.size())); o.failed()) return o;
    s.ca_guid = guid_of(c.state.devices[*id.device].mac);
    s.qpn = p.qpn & kMask24;
    s.psn = id.psn;
    s.responder_resources = p.responder_resources;
    s.initiator_depth = p.initiator_depth;
    s.flow_control = p.flow_control;
    s.rnr_retry_count = p.rnr_retry_count;
    s.srq = p.srq;
    std::copy_n(p.private_data, p.private_length, s.private_data.begin());
    if (const int error = c.state.cm->manager.accept(id.connection, s, c.state.now); error != 0)
        return fail(EINVAL, "the request is over");
    id.peer_rnr_retries = std::min<uint8_t>(p.rnr_retry_count, 7);
    id.state = IdState::accepted;
    return done();
}

Outcome send_sidr_rep(Call& c, CmId& id, const abi::CmParam& p) {
    constexpr uint32_t kRoom = 136;
    if (Outcome o = check_private(p, kRoom); o.failed()) return o;
    const int error = c.state.cm->manager.answer_service(id.connection, cm::SidrStatus::valid, p.qpn & kMask24, kUdpQkey,
                                                         {p.private_data, p.private_length}, c.state.now);
    if (error != 0) return fail(EINVAL, "the request is over");
    id.state = IdState::connected;
    return done();
}

// ---- QP attributes --------------------------------------------------------------------------------------------------

bool reliable(qp::Type t) { return t != qp::Type::uc; }

void init_attributes(const CmId& id, const cm::Connection* conn, abi::CmQpAttrReply& r) {
    r.mask = qp::kAttrState | qp::kAttrPkeyIndex | qp::kAttrPort;
    r.attr.qp_state = kStateInit;
    r.attr.port_num = 1;
    if (id.datagram()) {
        r.mask |= qp::kAttrQkey;
        r.attr.qkey = kUdpQkey;
        return;
    }
    r.mask |= qp::kAttrAccessFlags;
    if (conn != nullptr)
        r.attr.qp_access_flags = kRemoteWrite | (reliable(id.qp_type) ? kRemoteRead | kRemoteAtomic | kFlush : 0);
}

/// Sets the attributes for RTR. The starting PSN in a CM message is the first PSN that the sender of the message expects to
/// receive (IBA 12.7.31; as in Linux). So rq_psn is the PSN in the id's own CM message.
void rtr_attributes(const State& state, const CmId& id, const cm::Connection& conn, abi::CmQpAttrReply& r) {
    r.mask = qp::kAttrState | qp::kAttrAv | qp::kAttrPathMtu | qp::kAttrDestQpn | qp::kAttrRqPsn;
    r.attr.qp_state = kStateRtr;
    r.attr.ah = path_to_peer(state, id);
    r.attr.path_mtu = std::clamp<uint32_t>(conn.req.mtu, 1, active_mtu(state.devices[*id.device]));
    r.attr.dest_qp_num = conn.remote_qpn;
    r.attr.rq_psn = id.psn;
    if (id.qp_type != qp::Type::rc && id.qp_type != qp::Type::xrc_recv) return;
    r.mask |= qp::kAttrMaxDestRdAtomic | qp::kAttrMinRnrTimer;
    r.attr.max_dest_rd_atomic = id.responder_resources;
    r.attr.min_rnr_timer = abi::min_rnr_timer(id.peer_rnr_retries);
}

void rts_attributes(const CmId& id, const cm::Connection& conn, abi::CmQpAttrReply& r) {
    r.mask = qp::kAttrState | qp::kAttrSqPsn;
    r.attr.qp_state = kStateRts;
    r.attr.sq_psn = conn.active ? conn.rep.psn : conn.req.psn;
    if (!reliable(id.qp_type)) return;
    r.mask |= qp::kAttrTimeout;
    r.attr.timeout = conn.req.primary.ack_timeout;
    if (id.qp_type == qp::Type::xrc_recv) return;
    r.mask |= qp::kAttrRetryCount | qp::kAttrRnrRetry | qp::kAttrMaxRdAtomic;
    r.attr.retry_cnt = conn.active ? id.retry_count : conn.req.retry_count;
    r.attr.rnr_retry = conn.active ? conn.rep.rnr_retry_count : conn.req.rnr_retry_count;
    r.attr.max_rd_atomic = id.initiator_depth;
}

}  // namespace

abi::AhAttr path_to_peer(const State& state, const CmId& id) {
    abi::AhAttr av{};
    std::copy(id.remote.bytes.begin(), id.remote.bytes.end(), av.dgid.raw);
    const auto& gids = state.devices[*id.device].gids;
    av.sgid_index = uint8_t(std::find(gids.begin(), gids.end(), id.local) - gids.begin());
    av.hop_limit = kHopLimit;
    av.traffic_class = id.traffic_class;
    av.port_num = 1;
    av.is_global = 1;
    std::copy(id.remote_mac.bytes.begin(), id.remote_mac.bytes.end(), av.dmac);
    return av;
}

Outcome connect(Call& c) {
    const auto in = c.in<abi::CmConnectRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (id->state != IdState::route_resolved)
        return fail(EINVAL, "the id's route is not resolved, or the id was connected already");
    if (Outcome o = check_qpn(c, in.param.qpn); o.failed()) return o;
    if (Outcome o = id->datagram() ? send_sidr_req(c, *id, in.param) : send_req(c, *id, in.param); o.failed()) return o;
    if (id->connection == 0) return fail(ENOMEM, "rocid has too many connections");
    id->state = IdState::connecting;
    id->qpn = in.param.qpn & kMask24;
    id->journal.add(c.state.now, CmHappening::asked);
    settle(c.state);
    return done();
}

Outcome accept(Call& c) {
    const auto in = c.in<abi::CmConnectRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (id->state != IdState::requested) return fail(EINVAL, "the id has no request to accept");
    if (Outcome o = check_qpn(c, in.param.qpn); o.failed()) return o;
    if (!id->datagram()) {
        id->responder_resources = in.param.responder_resources;
        id->initiator_depth = in.param.initiator_depth;
    }
    if (Outcome o = id->datagram() ? send_sidr_rep(c, *id, in.param) : send_rep(c, *id, in.param); o.failed()) return o;
    id->qpn = in.param.qpn & kMask24;
    id->journal.add(c.state.now, CmHappening::accepted);
    settle(c.state);
    return done();
}

Outcome establish(Call& c) {
    CmId* id;
    if (Outcome o = find_id(c, c.in<abi::HandleRequest>().handle, id); o.failed()) return o;
    if (id->state != IdState::connecting || c.state.cm->manager.ready(id->connection, c.state.now) != 0)
        return fail(EINVAL, "the id has no response to confirm");
    id->state = IdState::connected;
    id->journal.add(c.state.now, CmHappening::established);
    settle(c.state);
    return done();
}

Outcome reject(Call& c) {
    constexpr uint32_t kRejRoom = 148, kSidrRoom = 136;
    const auto in = c.in<abi::CmRejectRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (id->state != IdState::requested && id->state != IdState::connecting) return fail(EINVAL, "the id has nothing to reject");
    if (Outcome o = check_private(in.param, id->datagram() ? kSidrRoom : kRejRoom); o.failed()) return o;
    const std::span<const uint8_t> data(in.param.private_data, in.param.private_length);
    cm::Manager& manager = c.state.cm->manager;
    const auto reason = in.reason == 0 ? cm::Reason::consumer : cm::Reason(in.reason);
    const int error = id->datagram() ? manager.answer_service(id->connection, cm::SidrStatus::rejected, 0, 0, data, c.state.now)
                                     : manager.reject(id->connection, reason, data, c.state.now);
    if (error != 0) return fail(EINVAL, "the request is over");
    id->state = IdState::disconnected;
    id->journal.add(c.state.now, CmHappening::turned_away, int32_t(reason));
    settle(c.state);
    return done();
}

Outcome notify(Call& c) {
    const auto in = c.in<abi::CmNotifyRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (in.event != kCommEstablished || id->connection == 0)
        return fail(EINVAL, "only IBV_EVENT_COMM_EST of a connection can be reported");
    const int error = c.state.cm->manager.traffic_seen(id->connection, c.state.now);
    settle(c.state);
    return error == 0 ? done() : fail(error, "the connection is not waiting to be established");
}

Outcome disconnect(Call& c) {
    CmId* id;
    if (Outcome o = find_id(c, c.in<abi::HandleRequest>().handle, id); o.failed()) return o;
    if (id->connection == 0 || id->datagram()) return fail(EINVAL, "the id has no connection");
    // A second disconnect, or a disconnect after the peer's disconnect, is not an error.
    (void)c.state.cm->manager.disconnect(id->connection, c.state.now);
    settle(c.state);
    return done();
}

abi::CmQpAttrReply qp_attributes(const State& state, const CmId& id, uint32_t qp_state) {
    abi::CmQpAttrReply r{};
    if (!id.device) return r;
    const cm::Connection* conn = id.connection != 0 ? state.cm->manager.find(id.connection) : nullptr;
    const bool has_peer = conn != nullptr && !id.datagram() && conn->remote_qpn != 0;
    if (qp_state == kStateInit) {
        init_attributes(id, conn, r);
    } else if (id.datagram() && (qp_state == kStateRtr || qp_state == kStateRts)) {
        r.mask = qp::kAttrState | (qp_state == kStateRts ? uint32_t(qp::kAttrSqPsn) : 0u);
        r.attr.qp_state = qp_state;
    } else if (qp_state == kStateRtr && has_peer) {
        rtr_attributes(state, id, *conn, r);
    } else if (qp_state == kStateRts && has_peer) {
        rts_attributes(id, *conn, r);
    }
    return r;
}

Outcome qp_attr(Call& c) {
    const auto in = c.in<abi::CmQpAttrRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (!id->device) return fail(EINVAL, "the id is not bound to a device");
    const abi::CmQpAttrReply r = qp_attributes(c.state, *id, in.qp_state);
    if (r.mask == 0) return fail(EINVAL, "no attributes for QP state {}: the connection has not reached that stage", in.qp_state);
    c.answer(r);
    return done();
}

}  // namespace roci::host::rdma_cm
