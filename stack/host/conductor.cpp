#include "host/conductor.hpp"

#include <algorithm>
#include <new>
#include <random>

#include "host/cm.hpp"
#include "host/dispatch.hpp"
#include "host/handlers.hpp"
#include "host/impl.hpp"
#include "host/neighbours.hpp"

namespace roci::host {
namespace {

/// QP numbers below are left to management and to people who count on fingers (rxe, too, starts at 0x11).
constexpr uint32_t kFirstQpn = 0x11;

void append(std::vector<std::byte>& to, const void* from, size_t length) {
    const auto* p = static_cast<const std::byte*>(from);
    to.insert(to.end(), p, p + length);
}

/// A client cannot take more than kMaxMessage; reasons are the only part without a fixed bound.
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
        if (outcome.failed()) call->session.arena.drop_unannounced();
        if (!outcome.failed()) {
            for (const SharedMemory& chunk : call->session.arena.announce(header.first_chunk)) {
                reply.fds.push_back(chunk.fd);
                reply.shared_fds_mask.push_back(1);
                ++header.new_chunks;
            }
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
        return dispatch(call, op);
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM, "rocid is out of memory");
    }
}

}  // namespace

Conductor::Impl::Impl(const Limits& limits_in, std::vector<DeviceConfig> devices_in, engine::Shared& shared_in,
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
      cm(std::make_unique<CmService>(std::random_device{}())),
      neighbours(std::make_unique<Neighbours>()) {
    for (uint32_t i = 0; i < devices.size() && i < shared.addresses.size(); ++i) {
        addresses.push_back(port_addresses(devices[i]));
        shared.addresses.publish(i, addresses.back().get());
        announce(*this, i);
    }
}

Conductor::Impl::~Impl() {
    for (auto& [id, session] : sessions) reclaim(*this, *session);
    sessions.clear();
    for (uint32_t i = 0; i < addresses.size(); ++i) shared.addresses.clear(i);
    shared.multicast.store(nullptr, std::memory_order_release);
    fence_all();
}

uint32_t Conductor::Impl::new_pd_number() {
    do {
        ++last_pd;
    } while (last_pd == 0 || !pd_numbers.insert(last_pd).second);
    return last_pd;
}

uint32_t Conductor::Impl::pick_engine() {
    const auto n = uint32_t(engine_load.size());
    uint32_t best = next_engine;
    for (uint32_t i = 1; i < n; ++i) {
        const uint32_t e = (next_engine + i) % n;
        if (engine_load[e] < engine_load[best]) best = e;
    }
    next_engine = (best + 1) % n;
    return best;
}

void Conductor::Impl::fence_all() {
    for (uint32_t e = 0; e < engine_load.size(); ++e) {
        engine::Command fence;
        engines.execute(e, fence);
    }
}

Conductor::Conductor(const Limits& limits, std::vector<DeviceConfig> devices, engine::Shared& shared,
                     engine::CommandPort& engines, Platform& platform)
    : impl_(std::make_unique<Impl>(limits, std::move(devices), shared, engines, platform)) {}

Conductor::~Conductor() = default;

uint32_t Conductor::open_session(const Client& who) {
    Impl& host = *impl_;
    if (host.sessions.size() >= host.limits.max_sessions || host.last_session == abi::kNoHandle - 1) return abi::kNoHandle;
    const uint32_t id = ++host.last_session;
    host.sessions.emplace(id, std::make_unique<Session>(id, who, host.platform, host.limits.max_arena_bytes));
    return id;
}

Reply Conductor::handle(uint32_t session, std::span<const std::byte> packet, std::span<const int> fds, bool& close) {
    return impl_->answer(session, packet, fds, close);
}

namespace {

/// The request comes again when the neighbour is known, or known not to answer.
Reply hold(Host& host, uint32_t session, std::span<const std::byte> packet, const neighbour::Key& neighbour) {
    neighbours_forget(host, session);  // a client that does not wait for its reply gets one of them
    host.neighbours->requests.push_back({session, neighbour, {packet.begin(), packet.end()}});
    Reply reply;
    reply.deferred = true;
    return reply;
}

}  // namespace

Reply Conductor::Impl::answer(uint32_t session_id, std::span<const std::byte> packet, std::span<const int> fds, bool& close) {
    Impl& host = *this;
    close = false;
    ReceivedFds received(host.platform, fds);
    abi::RequestHeader header{};
    if (!packet.empty()) std::memcpy(&header, packet.data(), std::min(packet.size(), sizeof header));
    Session* session = host.find(session_id);
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
    Call call{host, *session, packet.subspan(sizeof header), received, {}, {}, {}, false};
    Outcome outcome = run(call, header.op);
    close = call.close;
    if (outcome.waits_for && fds.empty()) return hold(host, session_id, packet, *outcome.waits_for);
    return make_reply(header.cookie, std::move(outcome), &call);
}

void Conductor::close_session(uint32_t session_id) {
    Impl& host = *impl_;
    Session* session = host.find(session_id);
    if (session == nullptr) return;
    neighbours_forget(host, session_id);
    reclaim(host, *session);
    host.sessions.erase(session_id);
}

std::vector<uint32_t> Conductor::sessions_without_memory() const {
    std::vector<uint32_t> out;
    for (const auto& [id, s] : impl_->sessions)
        if (impl_->platform.is_lost(s->doorbells) || s->arena.is_lost()) out.push_back(id);
    return out;
}

void Conductor::service(Nanos now) {
    impl_->now = now;
    neighbours_service(*impl_);
    cm_service(*impl_);
}

Nanos Conductor::next_deadline() const { return std::min(impl_->cm->manager.next_deadline(), neighbours_deadline(*impl_)); }

Conductor::Totals Conductor::totals() const { return totals_of(*impl_); }

std::string Conductor::status_json() const { return status_text(*impl_); }

}  // namespace roci::host
