// Converts events of the communication manager (cm/manager.hpp) to events of ids. Receives and sends MADs. Implements the
// requests that fetch and write events.
#include <algorithm>
#include <cstring>

#include "host/paths/resolve.hpp"
#include "host/rdma_cm/service.hpp"

namespace roci::host::rdma_cm {
namespace {

using cm::Event;

constexpr uint32_t kFirstQpState = 1;  // value of the QP state INIT; the values of RTR and RTS follow

void set_private(abi::CmParam& p, std::span<const uint8_t> data) {
    p.private_length = uint8_t(std::min<size_t>(data.size(), sizeof p.private_data));
    std::copy_n(data.begin(), p.private_length, p.private_data);
}

/// Copies the parameters of a REQ. The peer's initiator depth becomes the local responder resources, and vice versa.
void set_request_param(abi::CmParam& p, const cm::Req& req) {
    p.qpn = req.qpn;
    p.responder_resources = req.initiator_depth;
    p.initiator_depth = req.responder_resources;
    p.flow_control = req.flow_control;
    p.retry_count = req.retry_count;
    p.rnr_retry_count = req.rnr_retry_count;
    p.srq = req.srq;
}
void set_reply_param(abi::CmParam& p, const cm::Rep& rep) {
    p.qpn = rep.qpn;
    p.responder_resources = rep.initiator_depth;
    p.initiator_depth = rep.responder_resources;
    p.flow_control = rep.flow_control;
    p.rnr_retry_count = rep.rnr_retry_count;
    p.srq = rep.srq;
}

qp::Type accepting_type(const cm::Connection& conn, const CmId& listener) {
    return !conn.datagram && conn.req.service == cm::Service::extended ? qp::Type::xrc_recv : listener.qp_type;
}

/// Adds an id for a connection request and queues an event for the listener. Returns false if the backlog is full, or if the
/// request does not fit the listener.
bool add_child(State& state, uint32_t session, CmId& listener, const Event& e) {
    CmClient& client = state.cm->client(session);
    const cm::Connection& conn = *state.cm->manager.find(e.connection);
    const bool room = listener.pending < listener.backlog && client.ids.count() < kMaxCmIds;
    if (!room) ++state.cm->refused_backlog;
    const auto header = cm::get_ip_header(e.private_data);
    if (!room || conn.datagram != listener.datagram() || (!header && listener.space != cm::PortSpace::ib)) {
        listener.journal.add(state.now, CmHappening::no_room);
        return false;
    }
    const auto place = client.ids.next();
    CmId& child = client.ids.put(std::make_unique<CmId>());
    child.handle = place.handle;
    child.channel = listener.channel;
    ++client.channels.find(listener.channel)->ids;
    child.space = listener.space;
    child.qp_type = accepting_type(conn, listener);
    child.state = IdState::requested;
    child.device = conn.peer.port;
    child.local = conn.peer.local;
    child.remote = conn.peer.remote;
    child.remote_mac = conn.peer.remote_mac;
    child.traffic_class = conn.peer.traffic_class;
    child.source = to_address(child.local, listener.source.port);
    child.dest = to_address(child.remote, header ? header->source_port : uint16_t{0});
    child.psn = state.cm->random() & kMask24;
    child.parent = listener.handle;
    child.connection = e.connection;
    child.journal.add(state.now, CmHappening::request);
    state.cm->manager.set_owner(e.connection, uint64_t(session) << 32 | child.handle);
    ++listener.pending;

    CmEvent out;
    out.child = child.handle;
    out.child_generation = place.generation;
    out.type = CmEventType::connect_request;
    if (conn.datagram) {
        out.ah = path_to_peer(state, child);
    } else {
        set_request_param(out.param, conn.req);
        child.responder_resources = out.param.responder_resources;
        child.initiator_depth = out.param.initiator_depth;
    }
    const std::span<const uint8_t> data(e.private_data);
    set_private(out.param, header ? data.subspan(cm::kIpHeaderLength) : data);
    push_event(state, session, listener, out);
    return true;
}

void on_request(State& state, uint32_t session, CmId& listener, const Event& e) {
    if (listener.state == IdState::listening && add_child(state, session, listener, e)) return;
    cm::Manager& manager = state.cm->manager;
    const bool datagram = manager.find(e.connection)->datagram;
    if (datagram)
        (void)manager.answer_service(e.connection, cm::SidrStatus::rejected, 0, 0, {}, state.now);
    else
        (void)manager.reject(e.connection, cm::Reason::consumer, {}, state.now);
    manager.destroy(e.connection, state.now);
}

void on_sidr_reply(State& state, uint32_t session, CmId& id, const Event& e) {
    CmEvent out;
    set_private(out.param, e.private_data);
    const bool served = e.reason == uint16_t(cm::SidrStatus::valid);
    id.journal.add(state.now, served ? CmHappening::established : CmHappening::unserved, e.reason);
    if (served) {
        id.state = IdState::connected;
        out.type = CmEventType::established;
        out.param.qpn = e.qpn;
        out.param.qkey = e.qkey;
        out.ah = path_to_peer(state, id);
    } else {
        id.state = IdState::disconnected;
        out.type = CmEventType::unreachable;
        out.status = e.reason;
    }
    push_event(state, session, id, out);
}

struct Mapping {
    Event::Kind kind;
    CmEventType type;
    IdState state;
    int32_t status;
    std::optional<CmHappening> told;
};
constexpr Mapping kMappings[] = {
    {Event::Kind::reply, CmEventType::connect_response, IdState::connecting, 0, {}},
    {Event::Kind::established, CmEventType::established, IdState::connected, 0, CmHappening::established},
    {Event::Kind::rejected, CmEventType::rejected, IdState::disconnected, 0, CmHappening::rejected},
    {Event::Kind::unreachable, CmEventType::unreachable, IdState::disconnected, -ETIMEDOUT, CmHappening::unanswered},
    {Event::Kind::disconnected, CmEventType::disconnected, IdState::disconnected, 0, CmHappening::disconnected},
    {Event::Kind::gone, CmEventType::disconnected, IdState::disconnected, -ETIMEDOUT, CmHappening::gone},
    {Event::Kind::timewait_exit, CmEventType::timewait_exit, IdState::disconnected, 0, {}},
};

void on_reply(State& state, CmId& id, CmEvent& out) {
    const cm::Rep& rep = state.cm->manager.find(id.connection)->rep;
    set_reply_param(out.param, rep);
    // Limits the responder resources of this end to the peer's initiator depth, and the initiator depth of this end to the peer's
    // responder resources.
    id.responder_resources = std::min(id.responder_resources, rep.initiator_depth);
    id.initiator_depth = std::min(id.initiator_depth, rep.responder_resources);
}

void on_event(State& state, uint32_t session, CmId& id, const Event& e) {
    const auto* m = std::find_if(std::begin(kMappings), std::end(kMappings), [&](const Mapping& x) { return x.kind == e.kind; });
    if (m == std::end(kMappings)) return;
    CmEvent out;
    out.type = m->type;
    out.status = m->kind == Event::Kind::rejected ? int32_t(e.reason) : m->status;
    id.state = m->state;
    if (m->told) id.journal.add(state.now, *m->told, out.status);
    if (e.kind == Event::Kind::reply) on_reply(state, id, out);
    set_private(out.param, e.private_data);
    push_event(state, session, id, out);
}

void dispatch_event(State& state, const Event& e) {
    const auto session = uint32_t(e.owner >> 32);
    const auto client = state.cm->clients.find(session);
    CmId* id = client != state.cm->clients.end() ? client->second.ids.find(uint32_t(e.owner)) : nullptr;
    if (id == nullptr) return state.cm->manager.destroy(e.connection, state.now);
    if (e.kind == Event::Kind::connect_request) return on_request(state, session, *id, e);
    if (id->connection != e.connection) return;
    if (e.kind == Event::Kind::sidr_reply) return on_sidr_reply(state, session, *id, e);
    on_event(state, session, *id, e);
}

void send_one(State& state, const cm::Outgoing& m) {
    abi::AhAttr av{};
    const auto& gids = state.devices[m.to.port].gids;
    std::copy(m.to.remote.bytes.begin(), m.to.remote.bytes.end(), av.dgid.raw);
    std::copy(m.to.remote_mac.bytes.begin(), m.to.remote_mac.bytes.end(), av.dmac);
    av.sgid_index = uint8_t(std::find(gids.begin(), gids.end(), m.to.local) - gids.begin());
    av.traffic_class = m.to.traffic_class;
    av.port_num = 1;
    av.is_global = 1;
    paths::ResolvedPath path;
    if (paths::resolve_path(state, m.to.port, av, {1, m.dest.value}, path).failed()) return;  // the message is dropped
    io::GsiSend send;
    send.port = m.to.port;
    send.path = wire::make_path(path.spec);
    send.dest = m.dest;
    send.mad = m.mad;
    // If the port is full, the engine drops the datagram, as a network may do. cm::Manager tolerates such losses (expire()).
    state.engines.submit(0, engine::SendGsi{send});
}

bool exists(const CmClient& client, uint32_t handle, uint32_t generation) {
    return client.ids.find(handle) != nullptr && client.ids.generation(handle) == generation;
}
/// Returns true if the event's id was destroyed. For CONNECT_REQUEST, also returns true if the new id was destroyed.
bool stale(const CmClient& client, const CmEvent& e) {
    return !exists(client, e.id, e.id_generation) || (e.child != abi::kNoHandle && !exists(client, e.child, e.child_generation));
}

}  // namespace

void push_event(State& state, uint32_t session, CmId& id, CmEvent event) {
    CmChannel* channel = state.cm->client(session).channels.find(id.channel);
    if (channel == nullptr) return;
    event.id = id.handle;
    event.id_generation = state.cm->client(session).ids.generation(id.handle);
    ++id.events_waiting;
    channel->events.push_back(event);
    state.platform.signal_channel(session, kCmChannelBase + id.channel, state.cm->next_signal++);
}

/// Usually get_event() removes an event of a destroyed id when the event reaches the head of the queue. If more than half of the
/// queue's events belong to destroyed ids, this function removes all of these events at once. A search for the events of each
/// destroyed id would take quadratic time.
void forget_events(CmClient& client, uint32_t handle, uint32_t count) {
    constexpr uint32_t kFew = 32;
    CmChannel* channel = client.channels.find(handle);
    if (channel == nullptr || count == 0) return;
    channel->stale += count;
    if (channel->stale <= kFew || channel->stale <= channel->events.size() / 2) return;
    std::erase_if(channel->events, [&](const CmEvent& e) {
        if (!stale(client, e)) return false;
        client.forget(e);
        return true;
    });
    channel->stale = 0;
}

Outcome get_event(Call& c) {
    CmClient& client = c.state.cm->client(c.session.id);
    CmChannel* channel;
    if (Outcome o = look_up(client.channels, c.in<abi::HandleRequest>().handle, "event channel", channel); o.failed()) return o;
    if (channel->events.empty()) return fail(EAGAIN, "no event is waiting");
    const CmEvent e = channel->events.front();
    channel->events.pop_front();
    client.forget(e);
    if (stale(client, e)) {
        if (channel->stale != 0) --channel->stale;
        return fail(EAGAIN, "the event's id was destroyed");
    }
    abi::CmEventReply out{};
    out.id = e.id;
    out.listener = abi::kNoHandle;
    out.group = e.group;
    out.event = uint32_t(e.type);
    out.status = e.status;
    out.param = e.param;
    out.ah = e.ah;
    CmId& id = *client.ids.find(e.id);
    ++id.events_reported;
    --id.events_waiting;
    if (CmGroup* group = e.group == abi::kNoHandle ? nullptr : client.groups.find(e.group)) ++group->events_reported;
    if (e.type == CmEventType::connect_request) {
        out.listener = e.id;
        out.id = e.child;
        --id.pending;
        client.ids.find(e.child)->parent = abi::kNoHandle;
    }
    const CmId& about = *client.ids.find(out.id);
    out.route = describe_route(c.state, about);
    for (uint32_t i = 0; i < std::size(out.qp); ++i) out.qp[i] = qp_attributes(c.state, about, kFirstQpState + i);
    c.answer(out);
    return done();
}

Outcome write_event(Call& c) {
    const auto in = c.in<abi::CmWriteEventRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    const auto type = CmEventType(in.event);
    CmEvent e;
    e.type = type;
    if (!e.written() || type > CmEventType::user)
        return fail(EINVAL, "event {} cannot be written; write RDMA_CM_EVENT_USER", in.event);
    CmClient& client = c.state.cm->client(c.session.id);
    if (client.written >= kMaxWrittenEvents)
        return fail(ENOBUFS, "{} written events are waiting; get them first", client.written);
    ++client.written;
    e.status = in.status;
    e.param.private_length = sizeof in.arg;
    std::memcpy(e.param.private_data, &in.arg, sizeof in.arg);
    push_event(c.state, c.session.id, *id, e);
    return done();
}

void settle(State& state) {
    for (bool more = true; more;) {
        more = false;
        cm::Event e;
        while (state.cm->manager.next_event(e)) {
            more = true;
            dispatch_event(state, e);
        }
        cm::Outgoing m;
        while (state.cm->manager.next_message(m)) send_one(state, m);
    }
}

void service(State& state) {
    take_settled_addresses(state);
    for (const auto& ring : state.shared.gsi) {
        io::GsiFrame f;
        for (uint32_t i = 0; ring != nullptr && i < io::kGsiRingSize && ring->pop(f); ++i) {
            if (f.port >= state.devices.size()) continue;
            paths::overhear(state, f.port, f.remote, f.remote_mac);
            state.cm->manager.receive({{f.port, f.local, f.remote, f.remote_mac, 0}, f.source, f.mad}, state.now);
            settle(state);
        }
    }
    state.cm->manager.advance(state.now);
    settle(state);
}

void reclaim(State& state, uint32_t session) {
    const auto it = state.cm->clients.find(session);
    if (it == state.cm->clients.end()) return;
    std::vector<uint32_t> all;
    it->second.ids.each([&](uint32_t h, CmId&) { all.push_back(h); });
    for (const uint32_t h : all)  // destroying a listener also destroys the ids of its requests
        if (CmId* id = it->second.ids.find(h)) destroy(state, session, *id);
    it->second.channels.each(
        [&](uint32_t handle, CmChannel&) { state.platform.close_event_pipe(session, kCmChannelBase + handle); });
    state.cm->clients.erase(it);
    settle(state);
}

}  // namespace roci::host::rdma_cm
