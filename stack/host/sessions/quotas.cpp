#include "host/sessions/quotas.hpp"

#include <algorithm>
#include <set>

#include "host/objects/cq_memory.hpp"
#include "host/paths/neighbours.hpp"
#include "host/rdma_cm/service.hpp"
#include "host/sessions/handlers.hpp"

namespace roci::host::sessions {
namespace {

using abi::Op;

const rdma_cm::CmClient* cm_of(const State& state, const Session& s) {
    const auto it = state.cm->clients.find(s.id);
    return it == state.cm->clients.end() ? nullptr : &it->second;
}

/// One resource: the amount that a session uses, and the limit of rocid.
struct Row {
    uint64_t (*used)(const State&, const Session&);
    uint64_t Limits::*whole = nullptr;  ///< the limit of rocid; nullptr if this file does not check such a limit
};

uint64_t channels_of(const State& state, const Session& s) {
    const auto* cm = cm_of(state, s);
    return s.channels.count() + (cm != nullptr ? cm->channels.count() : 0);
}
uint64_t cm_ids_of(const State& state, const Session& s) {
    const auto* cm = cm_of(state, s);
    return cm != nullptr ? cm->ids.count() : 0;
}
uint64_t resolving_of(const State& state, const Session& s) {
    return uint64_t(std::ranges::count(state.neighbours->ids, s.id, &paths::HeldId::session));
}

/// Rates are counted per user, not per session, so the use of a session is 0. set_rate() reads the counters of the user.
uint64_t by_user(const State&, const Session&) { return 0; }

/// The rows are in the order of kUserLimits.
constexpr Row kRows[] = {
    {[](const State&, const Session&) { return uint64_t{1}; }},
    {[](const State&, const Session& s) { return uint64_t{s.qps.count()}; }},
    {[](const State&, const Session& s) { return uint64_t{s.cqs.count()}; }},
    {[](const State&, const Session& s) { return s.cq_entries; }},
    {[](const State&, const Session& s) { return uint64_t{s.srqs.count()}; }},
    {[](const State&, const Session& s) { return uint64_t{s.pds.count()}; }},
    {[](const State&, const Session& s) { return uint64_t{s.xrcds.count()}; }},
    {[](const State&, const Session& s) { return uint64_t{s.mrs.count()} + s.mws.count(); }},
    {[](const State&, const Session& s) { return uint64_t{s.ahs.size()}; }},
    {[](const State&, const Session& s) { return s.mapped.regions + s.arena.chunks() + 1; }, &Limits::max_mappings},
    {[](const State&, const Session& s) { return s.mapped.bytes; }, &Limits::max_mapped_bytes},
    {[](const State&, const Session& s) { return s.arena.bytes(); }},
    {[](const State&, const Session& s) { return s.device_memory; }},
    {channels_of},
    {cm_ids_of},
    {resolving_of},
    {by_user},
    {by_user},
    {by_user},
};
/// Indices of kUserLimits and kRows.
enum Resource : uint8_t {
    kSessions,
    kQps,
    kCqs,
    kCqEntries,
    kSrqs,
    kPds,
    kXrcds,
    kKeys,
    kAhs,
    kMappings,
    kMappedBytes,
    kArenaBytes,
    kDeviceMemory,
    kChannels,
    kCmIds,
    kResolving,
    kControlRate,
    kBytesPerSecond,
    kPacketsPerSecond,
    kResources
};
static_assert(std::size(kRows) == kResources && std::size(kUserLimits) == kResources && kResources <= kMostResources);

uint64_t one(const Call&) { return 1; }
/// The amount for requests that may enlarge the arena. The enlargement is not known before the request runs, so the amount is 0.
/// Such a request is refused only if the limit is already reached.
uint64_t none(const Call&) { return 0; }

/// Returns the number of entries per lane (one engine's part) of a CQ for which the client requests `cqe` entries. Returns 0 if
/// `cqe` is invalid, because the handler then refuses the request.
uint64_t entries(const Call& c, uint32_t cqe) {
    uint32_t depth = 0;
    return objects::cq_depth(c.state.limits, cqe, depth).failed() ? 0 : depth;
}

/// The amount of a resource that a request takes.
struct Taking {
    Op op;
    Resource resource;
    uint64_t (*amount)(const Call&);
};
constexpr Taking kTakings[] = {
    {Op::create_qp, kQps, one},
    {Op::create_qp, kArenaBytes, none},
    {Op::open_qp, kQps, one},
    {Op::create_cq, kCqs, one},
    {Op::create_cq, kCqEntries, [](const Call& c) { return entries(c, c.in<abi::CreateCqRequest>().cqe); }},
    {Op::create_cq, kArenaBytes, none},
    {Op::resize_cq, kCqEntries, [](const Call& c) { return entries(c, c.in<abi::ResizeCqRequest>().cqe); }},
    {Op::resize_cq, kArenaBytes, none},
    {Op::create_srq, kSrqs, one},
    {Op::create_srq, kArenaBytes, none},
    {Op::modify_srq, kArenaBytes, none},
    {Op::alloc_pd, kPds, one},
    {Op::open_xrcd, kXrcds, one},
    {Op::reg_mr, kKeys, one},
    {Op::reg_dm_mr, kKeys, one},
    {Op::alloc_null_mr, kKeys, one},
    {Op::alloc_mw, kKeys, one},
    {Op::create_ah, kAhs, one},
    {Op::add_region, kMappings, one},
    {Op::add_region, kMappedBytes, [](const Call& c) { return c.in<abi::AddRegionRequest>().length; }},
    {Op::alloc_dm, kDeviceMemory, [](const Call& c) { return c.in<abi::AllocDmRequest>().length; }},
    {Op::alloc_dm, kArenaBytes, none},
    {Op::add_chunk, kArenaBytes, [](const Call& c) { return c.in<abi::AddChunkRequest>().length; }},
    {Op::add_chunk, kMappings, one},
    {Op::create_channel, kChannels, one},
    {Op::cm_open_channel, kChannels, one},
    {Op::cm_create_id, kCmIds, one},
    {Op::cm_resolve_addr, kResolving, one},
};

bool over(uint64_t used, uint64_t amount, uint64_t limit) {
    return amount == 0 ? used >= limit : amount > limit || used > limit - amount;
}

template <class Counts>
uint64_t sum(const State& state, const Row& row, Counts counts) {
    uint64_t n = 0;
    for (const auto& [id, s] : state.sessions)
        if (counts(*s)) n += row.used(state, *s);
    return n;
}
uint64_t used_by(const State& state, uint32_t uid, const Row& row) {
    return sum(state, row, [uid](const Session& s) { return s.who.uid == uid; });
}

uint64_t limit_of(const State& state, const Client& who, size_t resource) {
    return state.limits.of_user(who.uid, who.gid).*kUserLimits[resource].limit;
}

Outcome refuse(State& state, uint32_t uid, Resource resource, uint64_t used, uint64_t limit) {
    ++state.refused[uid][resource];
    return fail(ENOMEM, "limit {}: user {} has {} of {}", kUserLimits[resource].name, uid, used, limit);
}

Outcome check_one(Call& c, const Taking& t) {
    const Row& row = kRows[t.resource];
    const uint64_t amount = t.amount(c);
    const Client& who = c.session.who;
    if (row.whole != nullptr) {
        const uint64_t all = sum(c.state, row, [](const Session&) { return true; });
        if (over(all, amount, c.state.limits.*row.whole)) {
            ++c.state.refused[who.uid][t.resource];
            return fail(ENOMEM, "limit {}: all users together have {} of {}", kUserLimits[t.resource].name, all,
                        c.state.limits.*row.whole);
        }
    }
    if (c.state.privileged(who)) return done();
    const uint64_t used = used_by(c.state, who.uid, row), limit = limit_of(c.state, who, t.resource);
    return over(used, amount, limit) ? refuse(c.state, who.uid, t.resource, used, limit) : done();
}

}  // namespace

namespace {

/// Checks that rocid may allocate memory for the object. A mapping also needs page tables in the kernel, whose length is 1/512 of
/// the length of the mapping.
Outcome check_memory(Call& c, Op op) {
    constexpr uint64_t kPerPageTable = 512;
    const uint64_t tables = op == Op::add_region ? c.in<abi::AddRegionRequest>().length / kPerPageTable : 0;
    std::string why;
    return c.state.platform.has_memory(tables, why) ? done() : fail(ENOMEM, "limit memory.max: {}", why);
}

}  // namespace

Outcome check_quota(Call& c, Op op) {
    bool takes = false;
    for (const Taking& t : kTakings) {
        if (t.op != op) continue;
        takes = true;
        if (Outcome o = check_one(c, t); o.failed()) return o;
    }
    return takes ? check_memory(c, op) : done();
}

void charge(State& state, const Client& who) {
    if (state.privileged(who)) return;
    const uint64_t rate = limit_of(state, who, kControlRate);
    if (rate == 0) return;
    state.rates[who.uid].take(rate, state.now);
    if (not_before(state, who) > state.now) ++state.refused[who.uid][kControlRate];
}

qp::UserRate* rate_of(State& state, const Client& who) {
    if (state.privileged(who)) return nullptr;
    const uint64_t bytes = limit_of(state, who, kBytesPerSecond), packets = limit_of(state, who, kPacketsPerSecond);
    if (bytes == 0 && packets == 0) return nullptr;
    return &state.user_rates.try_emplace(who.uid, bytes, packets).first->second;
}

Nanos not_before(const State& state, const Client& who) {
    const auto bucket = state.rates.find(who.uid);
    return bucket != state.rates.end() ? bucket->second.settled() : 0;
}

/// Without this function, a person with several user IDs could fill the tables. A sweep takes time in proportion to the number of
/// entries. The next sweep follows when this number has doubled, so the average time per new session is constant.
void forget_idle_users(State& state) {
    constexpr size_t kFew = 64;
    const auto entries = [&state] { return std::max({state.rates.size(), state.user_rates.size(), state.refused.size()}); };
    if (entries() <= std::max(state.users_to_sweep, kFew)) return;
    std::set<uint32_t> users;
    for (const auto& [id, s] : state.sessions) users.insert(s->who.uid);
    const auto gone = [&users](uint32_t uid) { return !users.contains(uid); };
    std::erase_if(state.rates, [&](const auto& r) { return gone(r.first) && r.second.full(state.now); });
    std::erase_if(state.user_rates, [&](const auto& r) { return gone(r.first) && r.second.idle(state.now); });
    std::erase_if(state.refused, [&](const auto& r) { return gone(r.first) && !state.rates.contains(r.first); });
    state.users_to_sweep = 2 * entries();
}

bool may_open_session(State& state, const Client& who) {
    forget_idle_users(state);
    constexpr Nanos kMostDelay = 1'000'000'000;
    if (not_before(state, who) >= state.now + kMostDelay) return false;  // no charge() for a refusal, so that debts stay limited
    charge(state, who);
    std::string why;
    if (!state.platform.has_memory(0, why)) return false;
    if (state.privileged(who)) return true;
    const uint64_t used = used_by(state, who.uid, kRows[kSessions]), limit = limit_of(state, who, kSessions);
    return used < limit || !refuse(state, who.uid, kSessions, used, limit).failed();
}

namespace {

/// Sets `used` of a resource that is a rate. Removes a limit of 0, because 0 means that there is no limit.
void set_rate(const State& state, uint32_t uid, size_t resource, QuotaLine& line) {
    if (line.limit == uint64_t{0}) line.limit.reset();
    const auto control = state.rates.find(uid);
    if (resource == kControlRate && control != state.rates.end() && line.limit)
        line.used = control->second.used(*line.limit, state.now);
    const auto sent = state.user_rates.find(uid);
    if (resource == kControlRate || sent == state.user_rates.end()) return;
    const qp::UserRate& rate = sent->second;
    line.used = resource == kBytesPerSecond ? rate.bytes_per_second(state.now) : rate.packets_per_second(state.now);
    line.refused = line.limit ? rate.waits() : 0;
}

}  // namespace

std::vector<QuotaLine> quota_lines(const State& state, const Client& who) {
    std::vector<QuotaLine> lines;
    const auto refused = state.refused.find(who.uid);
    for (size_t r = 0; r < kResources; ++r) {
        QuotaLine& line = lines.emplace_back(QuotaLine{kUserLimits[r].name, used_by(state, who.uid, kRows[r])});
        if (!state.privileged(who)) line.limit = limit_of(state, who, r);
        if (refused != state.refused.end()) line.refused = refused->second[r];
        if (r >= kControlRate) set_rate(state, who.uid, r, line);
    }
    return lines;
}

}  // namespace roci::host::sessions
