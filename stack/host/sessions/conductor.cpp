#include "host/conductor.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "host/paths/neighbours.hpp"
#include "host/paths/port_changes.hpp"
#include "host/port_attributes.hpp"
#include "host/rdma_cm/service.hpp"
#include "host/sessions/dispatch.hpp"
#include "host/sessions/handlers.hpp"
#include "host/sessions/quotas.hpp"

namespace roci::host {
namespace {

/// First QP number. Lower QP numbers are reserved for management; Soft-RoCE (rxe) also starts at 0x11.
constexpr uint32_t kFirstQpn = 0x11;

void append(std::vector<std::byte>& to, const void* from, size_t length) {
    const auto* p = static_cast<const std::byte*>(from);
    to.insert(to.end(), p, p + length);
}

/// Largest length of a reason in bytes. The limit exists because a reply must fit into kMaxMessage, and the other parts of a
/// reply are limited already.
constexpr size_t kMaxReason = 1024;

Reply make_reply(uint32_t cookie, Outcome&& outcome, Call* call) {
    abi::ReplyHeader header{};
    header.error = outcome.error;
    header.cookie = cookie;
    if (outcome.reason.size() > kMaxReason) outcome.reason.resize(kMaxReason);
    header.reason_length = uint32_t(outcome.reason.size());
    Reply reply;
    if (call != nullptr) {
        header.body_length = uint32_t(call->body.size());
        header.wanted_chunk = outcome.wanted_chunk;
        if (!outcome.failed()) {
            reply.fds.insert(reply.fds.end(), call->fds.begin(), call->fds.end());
            reply.shared_fds_mask.insert(reply.shared_fds_mask.end(), call->keep_open.begin(), call->keep_open.end());
        }
    }
    append(reply.bytes, &header, sizeof header);
    if (call != nullptr) append(reply.bytes, call->body.data(), call->body.size());
    append(reply.bytes, outcome.reason.data(), outcome.reason.size());
    return reply;
}

Outcome run(Call& call, abi::Op op) {
    try {
        return sessions::dispatch(call, op);
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM, "rocid is out of memory");
    }
}

/// Stores a request that cannot complete yet. run_ready() runs the request again when the resolution of the neighbour has ended.
/// If the request waits for memory, run_ready() runs it again at intervals.
Reply hold(State& state, uint32_t session, std::span<const std::byte> packet, const Outcome& outcome) {
    // If a client sends a request before it has received the previous reply, the client does not get the previous reply.
    std::erase_if(state.replies, [session](const HeldReply& r) { return r.session == session; });
    paths::forget_requests(state, session);
    state.memory_waits.forget(session);
    std::vector<std::byte> copy(packet.begin(), packet.end());
    if (outcome.waits_for)
        state.neighbours->requests.push_back({session, *outcome.waits_for, std::move(copy)});
    else
        state.memory_waits.hold(state.now, {session, std::move(copy)});
    Reply reply;
    reply.deferred = true;
    return reply;
}

Reply answer(State& state, uint32_t session_id, std::span<const std::byte> packet, std::span<const int> fds, bool& close) {
    close = false;
    ReceivedFds received(state.platform, fds);
    abi::RequestHeader header{};
    if (!packet.empty()) std::memcpy(&header, packet.data(), std::min(packet.size(), sizeof header));
    Session* session = state.find(session_id);
    if (session == nullptr) {
        close = true;
        return make_reply(header.cookie, fail(ENOTCONN, "no such session; connect again"), nullptr);
    }
    if (packet.size() < sizeof header) {
        return make_reply(0, fail(EINVAL, "message of {} bytes, shorter than its header of {}", packet.size(), sizeof header),
                          nullptr);
    }
    if (packet.size() > abi::kMaxMessage) {
        return make_reply(header.cookie, fail(EMSGSIZE, "message of {} bytes, longer than {}", packet.size(), abi::kMaxMessage),
                          nullptr);
    }
    Call call{state, *session, packet.subspan(sizeof header), received, {}, {}, {}, false};
    Outcome outcome = run(call, header.op);
    close = call.close;
    if ((outcome.waits_for || outcome.waits_for_memory) && fds.empty()) return hold(state, session_id, packet, outcome);
    return make_reply(header.cookie, std::move(outcome), &call);
}

void run_again(State& state, uint32_t session, std::span<const std::byte> packet) {
    HeldReply out;
    out.session = session;
    out.reply = answer(state, session, packet, {}, out.close);
    if (!out.reply.deferred) state.replies.push_back(std::move(out));
}

/// Runs stored requests again: requests whose neighbour resolution has ended and, at intervals, requests that wait for memory.
void run_ready(State& state) {
    auto& ready = state.neighbours->ready;
    while (!ready.empty()) {
        const paths::HeldRequest r = std::move(ready.front());
        ready.pop_front();
        run_again(state, r.session, r.packet);
    }
    for (const MemoryWait& w : state.memory_waits.look(state.now)) run_again(state, w.session, w.packet);
}

}  // namespace

Conductor::State::State(const Limits& limits_in, std::vector<DeviceConfig> devices_in, qp::Shared& shared_in,
                        engine::CommandPort& engines_in, Platform& platform_in)
    : limits(limits_in),
      devices(std::move(devices_in)),
      shared(shared_in),
      engines(engines_in),
      platform(platform_in),
      qps(shared.chunks),
      regions(shared.chunks),
      qpns(kFirstQpn, std::min(shared.qps.size(), kMask24)),
      keys(1, shared.keys.size()),
      ahs(1, shared.ahs.size()),
      srqns(1, std::min(shared.srqs.size(), kMask24)),
      key_variant(shared.keys.size(), 0),
      engine_load(engines.engines(), 0),
      cm(std::make_unique<rdma_cm::CmService>(platform.random())),
      neighbours(std::make_unique<paths::Neighbours>()) {
    for (size_t i = 0; i < key_variant.size(); i += sizeof(uint64_t)) {
        const uint64_t eight = platform.random();
        std::memcpy(&key_variant[i], &eight, std::min(sizeof eight, key_variant.size() - i));
    }
    for (uint32_t i = 0; i < devices.size(); ++i)
        for (const auto& [gid, mac] : devices[i].neighbours) neighbours->cache.configure({i, gid}, mac);
    for (uint32_t i = 0; i < devices.size() && i < shared.addresses.size(); ++i) {
        addresses.push_back(paths::port_addresses(devices[i]));
        shared.addresses.publish(i, addresses.back().get());
        publish_to_clients(*this, i);
        paths::announce(*this, i);
    }
}

Conductor::State::~State() {
    for (auto& [id, session] : sessions) sessions::reclaim(*this, *session);
    sessions.clear();
    for (uint32_t i = 0; i < addresses.size(); ++i) shared.addresses.clear(i);
    shared.multicast.store(nullptr, std::memory_order_release);
    fence_all();
}

uint32_t Conductor::State::new_pd_number() {
    do {
        ++last_pd;
    } while (last_pd == 0 || !pd_numbers.insert(last_pd).second);
    return last_pd;
}

uint32_t Conductor::State::pick_engine() {
    const auto n = uint32_t(engine_load.size());
    uint32_t best = next_engine;
    for (uint32_t i = 1; i < n; ++i) {
        const uint32_t e = (next_engine + i) % n;
        if (engine_load[e] < engine_load[best]) best = e;
    }
    next_engine = (best + 1) % n;
    return best;
}

void Conductor::State::fence_all() { engines.fence_all(); }

Conductor::Conductor(const Limits& limits, std::vector<DeviceConfig> devices, qp::Shared& shared, engine::CommandPort& engines,
                     Platform& platform)
    : state_(std::make_unique<State>(limits, std::move(devices), shared, engines, platform)) {}

Conductor::~Conductor() = default;

uint32_t Conductor::open_session(const Client& who) {
    State& state = *state_;
    if (state.sessions.size() >= state.limits.max_sessions || state.last_session == abi::kNoHandle - 1 ||
        !sessions::may_open_session(state, who))
        return abi::kNoHandle;
    const uint32_t id = ++state.last_session;
    state.sessions.emplace(id, std::make_unique<Session>(id, who, state.platform, state.limits.max_arena_bytes));
    return id;
}

Reply Conductor::handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close) {
    if (const Session* s = state_->find(session)) sessions::charge(*state_, s->who);
    return answer(*state_, session, packet, fds, close);
}

Nanos Conductor::not_before(uint32_t session) const {
    const Session* s = state_->find(session);
    return s != nullptr ? sessions::not_before(*state_, s->who) : 0;
}

void Conductor::close_session(uint32_t session_id, Nanos now) {
    State& state = *state_;
    state.now = std::max(state.now, now);
    Session* session = state.find(session_id);
    if (session == nullptr) return;
    std::erase_if(state.replies, [session_id](const HeldReply& r) { return r.session == session_id; });
    paths::forget_session(state, session_id);
    state.memory_waits.forget(session_id);
    sessions::reclaim(state, *session);
    state.sessions.erase(session_id);
}

size_t Conductor::users() const { return std::max({state_->rates.size(), state_->user_rates.size(), state_->refused.size()}); }

std::vector<uint32_t> Conductor::sessions_without_memory() const {
    std::vector<uint32_t> out;
    for (const auto& [id, s] : state_->sessions)
        if (state_->platform.is_lost(s->doorbells) || s->arena.is_lost()) out.push_back(id);
    return out;
}

void Conductor::service(Nanos now) {
    state_->now = now;
    paths::service(*state_);
    run_ready(*state_);
    rdma_cm::service(*state_);
    paths::ask_neighbours(*state_);
}

Nanos Conductor::next_deadline() const {
    const Nanos waits =
        std::min({state_->cm->manager.next_deadline(), paths::next_deadline(*state_), state_->memory_waits.next_deadline()});
    return state_->replies.empty() ? waits : state_->now;
}

bool Conductor::next_reply(uint32_t& session, Reply& reply, bool& close) {
    auto& replies = state_->replies;
    if (replies.empty()) return false;
    session = replies.front().session;
    reply = std::move(replies.front().reply);
    close = replies.front().close;
    replies.pop_front();
    return true;
}

bool Conductor::set_addresses(uint32_t device, std::span<const DeviceAddress> addresses) {
    return paths::set_addresses(*state_, device, addresses);
}

bool Conductor::set_link(uint32_t device, bool up, uint32_t mtu_bytes) { return paths::set_link(*state_, device, up, mtu_bytes); }

void Conductor::neighbour_heard(uint32_t device, const Gid& address, const MacAddress& mac, Nanos now) {
    state_->neighbours->cache.heard({device, address}, mac, now, false);
}

void Conductor::neighbour_gone(uint32_t device, const Gid& address, Nanos now) {
    state_->neighbours->cache.gone({device, address}, now);
}

Conductor::Totals Conductor::totals() const { return sessions::totals_of(*state_); }

std::string Conductor::status_json() const { return sessions::status_text(*state_, {}); }

}  // namespace roci::host
