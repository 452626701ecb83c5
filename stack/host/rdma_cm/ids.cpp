// Creates and destroys event channels and ids, moves ids between channels, and sets options of ids.
#include <algorithm>

#include "host/rdma_cm/service.hpp"

namespace roci::host::rdma_cm {
namespace {

constexpr int kOptionLevelId = 0;
enum class IdOption : int { tos = 0, reuse_address = 1, af_only = 2, ack_timeout = 3 };

struct SpaceRule {
    cm::PortSpace space;
    bool datagram, connected;
};
constexpr SpaceRule kSpaces[] = {{cm::PortSpace::tcp, false, true},
                                 {cm::PortSpace::udp, true, false},
                                 {cm::PortSpace::ipoib, true, false},
                                 {cm::PortSpace::ib, true, true}};
constexpr qp::Type kConnectedTypes[] = {qp::Type::rc, qp::Type::uc, qp::Type::xrc_send, qp::Type::xrc_recv};

bool fits(const SpaceRule& rule, qp::Type type) {
    if (type == qp::Type::ud) return rule.datagram;
    return rule.connected && std::find(std::begin(kConnectedTypes), std::end(kConnectedTypes), type) != std::end(kConnectedTypes);
}

}  // namespace

CmService::CmService(uint64_t seed)
    : manager([&] {
          cm::Config config;
          config.first_id = uint32_t(seed * 0x9e3779b97f4a7c15u >> 32) | 1;
          return config;
      }()),
      random_state(seed | 1) {}

/// Returns the next number of a pseudorandom sequence that differs between runs (xorshift64*). The numbers need not be secret.
uint32_t CmService::random() {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return uint32_t(random_state * 0x2545f4914f6cdd1du >> 32);
}

Outcome find_id(Call& c, uint32_t handle, CmId*& out) {
    return look_up(c.state.cm->client(c.session.id).ids, handle, "connection id", out);
}

Outcome open_channel(Call& c) {
    CmClient& client = c.state.cm->client(c.session.id);
    if (Outcome o = has_room(client.channels, kMaxCmChannels, "event channel"); o.failed()) return o;
    const auto p = client.channels.next();
    const int fd = c.state.platform.make_event_pipe(c.session.id, kCmChannelBase + p.handle);
    if (fd < 0 && c.state.real_descriptors()) return fail(EMFILE, "rocid is out of file descriptors; raise its limit");
    client.channels.put(std::make_unique<CmChannel>());
    c.give(fd, false);
    c.answer(abi::HandleReply{p.handle, p.generation});
    return done();
}

Outcome close_channel(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    CmClient& client = c.state.cm->client(c.session.id);
    CmChannel* channel;
    if (Outcome o = look_up(client.channels, handle, "event channel", channel); o.failed()) return o;
    if (channel->ids != 0) return fail(EBUSY, "event channel is in use by {} ids; destroy them first", channel->ids);
    for (const CmEvent& e : channel->events) client.forget(e);
    c.state.platform.close_event_pipe(c.session.id, kCmChannelBase + handle);
    client.channels.erase(handle);
    return done();
}

Outcome create_id(Call& c) {
    const auto in = c.in<abi::CmCreateIdRequest>();
    CmClient& client = c.state.cm->client(c.session.id);
    CmChannel* channel;
    if (Outcome o = look_up(client.channels, in.channel, "event channel", channel); o.failed()) return o;
    const auto* rule = std::find_if(std::begin(kSpaces), std::end(kSpaces),
                                    [&](const SpaceRule& r) { return uint32_t(r.space) == in.port_space; });
    if (rule == std::end(kSpaces)) return fail(EPROTONOSUPPORT, "port space {:#x} is none of TCP, UDP, IPoIB, IB", in.port_space);
    const auto type = qp::Type(in.qp_type);
    if (in.qp_type > 255 || !fits(*rule, type))
        return fail(EINVAL, "QP type {} is not possible in port space {:#x}", in.qp_type, in.port_space);
    if (Outcome o = has_room(client.ids, kMaxCmIds, "connection id"); o.failed()) return o;
    const auto p = client.ids.next();
    CmId& id = client.ids.put(std::make_unique<CmId>());
    id.handle = p.handle;
    id.channel = in.channel;
    id.space = rule->space;
    id.qp_type = type;
    id.psn = c.state.cm->random() & kMask24;
    ++channel->ids;
    c.answer(abi::HandleReply{p.handle, p.generation});
    return done();
}

/// Destroys the ids of the connection requests of a listener, except requests that the program has fetched already.
void destroy_requests(State& state, uint32_t session, const CmId& listener) {
    CmClient& client = state.cm->client(session);
    std::vector<uint32_t> orphans;
    client.ids.each([&](uint32_t h, const CmId& other) {
        if (other.parent == listener.handle) orphans.push_back(h);
    });
    for (const uint32_t h : orphans) destroy(state, session, *client.ids.find(h));
}

void destroy(State& state, uint32_t session, CmId& id) {
    archive(state, session, id);
    paths::forget_id(state, session, id.handle);
    CmClient& client = state.cm->client(session);
    if (id.listener != 0) state.cm->manager.unlisten(cm::service_id(id.space, id.source.port), id.listener);
    if (id.pending != 0) destroy_requests(state, session, id);
    if (id.connection != 0) state.cm->manager.destroy(id.connection, state.now);
    CmId* parent = id.parent == abi::kNoHandle ? nullptr : client.ids.find(id.parent);
    if (parent != nullptr) --parent->pending;
    release_port(state, session, id);
    for (const uint32_t group : id.groups) client.groups.erase(group);
    if (CmChannel* channel = client.channels.find(id.channel)) --channel->ids;
    const uint32_t channel = id.channel, waiting = id.events_waiting;
    client.ids.erase(id.handle);
    forget_events(client, channel, waiting);
    if (parent != nullptr) forget_events(client, parent->channel, 1);  // the event that reports this id to the listener
}

Outcome destroy_id(Call& c) {
    CmId* id;
    if (Outcome o = find_id(c, c.in<abi::HandleRequest>().handle, id); o.failed()) return o;
    c.answer(abi::CmEventsReply{id->events_reported, 0});
    destroy(c.state, c.session.id, *id);
    settle(c.state);
    return done();
}

namespace {

/// Moves an id to an event channel. If the id is a listener, also moves the ids of its connection requests, except requests that
/// the program has fetched already.
void move_to(CmClient& client, CmId& id, uint32_t channel) {
    const auto move = [&](CmId& moving) {
        --client.channels.find(moving.channel)->ids;
        moving.channel = channel;
        ++client.channels.find(channel)->ids;
    };
    move(id);
    if (id.pending == 0) return;
    client.ids.each([&](uint32_t, CmId& other) {
        if (other.parent == id.handle) move(other);
    });
}

}  // namespace

Outcome migrate(Call& c) {
    const auto in = c.in<abi::CmMigrateRequest>();
    CmClient& client = c.state.cm->client(c.session.id);
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    CmChannel* to;
    if (Outcome o = look_up(client.channels, in.channel, "event channel", to); o.failed()) return o;
    c.answer(abi::CmEventsReply{id->events_reported, 0});
    CmChannel* from = client.channels.find(id->channel);
    if (from == to) return done();
    move_to(client, *id, in.channel);
    const auto moves = [&](const CmEvent& e) {
        const CmId* about = client.ids.find(e.id);
        return about != nullptr && about->channel == in.channel && e.id_generation == client.ids.generation(e.id);
    };
    for (const CmEvent& e : from->events) {
        if (!moves(e)) continue;
        to->events.push_back(e);
        c.state.platform.signal_channel(c.session.id, kCmChannelBase + in.channel, c.state.cm->next_signal++);
    }
    std::erase_if(from->events, moves);
    return done();
}

Outcome set_option(Call& c) {
    const auto in = c.in<abi::CmOptionRequest>();
    CmId* id;
    if (Outcome o = find_id(c, in.id, id); o.failed()) return o;
    if (in.level != kOptionLevelId) return fail(ENOSYS, "option level {} is not known", in.level);
    uint32_t value = 0;
    std::memcpy(&value, in.value, sizeof value);
    const auto need = [&](uint32_t length) -> Outcome {
        return in.length == length ? done() : fail(EINVAL, "option {} has {} bytes, {} are needed", in.name, in.length, length);
    };
    switch (IdOption(in.name)) {
        case IdOption::tos:
            if (Outcome o = need(1); o.failed()) return o;
            id->traffic_class = in.value[0];
            return done();
        case IdOption::reuse_address:
            if (Outcome o = need(4); o.failed()) return o;
            if (id->state != IdState::idle && !(id->state == IdState::bound && value != 0))
                return fail(EINVAL, "the id is bound already");
            id->reuse = value != 0;
            return done();
        case IdOption::af_only:
            if (Outcome o = need(4); o.failed()) return o;
            if (id->state != IdState::idle) return fail(EINVAL, "the id is bound already");
            id->af_only = value != 0;
            return done();
        case IdOption::ack_timeout:
            if (Outcome o = need(1); o.failed()) return o;
            if (in.value[0] > 31) return fail(EINVAL, "ACK timeout {} is more than 31", in.value[0]);
            id->ack_timeout = in.value[0];
            return done();
    }
    return fail(ENOSYS, "option {} is not known", in.name);
}

}  // namespace roci::host::rdma_cm
