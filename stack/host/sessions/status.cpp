// The JSON text of `roci status`. The top level has the keys rocinante, devices, engines, sessions and limits. For root and the
// user of rocid, the top level also has totals, rdma_cm, neighbours and host. Programs read this text, so a commit may add fields
// but not rename fields.
#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "host/paths/neighbours.hpp"
#include "host/rdma_cm/status.hpp"
#include "host/sessions/handlers.hpp"
#include "host/sessions/quotas.hpp"
#include "qp/attributes.hpp"
#include "wire/describe.hpp"

namespace roci::host::sessions {
namespace {

using wire::to_text;
using Json = nlohmann::ordered_json;

/// Largest number of QPs for which the status contains data of the QP's engine. The number is limited, because snapshots use time
/// of the engines.
constexpr size_t kDetailedQps = 1024;

std::string mac_text(const MacAddress& m) { return fmt::format("{:02x}", fmt::join(m.bytes, ":")); }

Json device_json(const DeviceConfig& d) {
    Json gids = Json::array();
    for (size_t i = 0; i < d.gids.size(); ++i) {
        if (!d.gids[i].is_zero()) gids.push_back({{"index", i}, {"gid", to_text(d.gids[i])}, {"type", "RoCE v2"}});
    }
    return {{"name", d.name},
            {"netdev", d.netdev},
            {"mac", mac_text(d.mac)},
            {"state", d.active ? "active" : "down"},
            {"mtu", mtu_bytes(active_mtu(d))},
            {"gids", std::move(gids)}};
}

Json counters_json(const qp::Counters& c) {
    Json j;
    const auto values = qp::values(c);
    for (size_t i = 0; i < values.size(); ++i) j[qp::kQpCounters[i].name] = values[i];
    return j;
}

Json peer_json(const abi::QpAttr& a) {
    Gid gid;
    std::copy(std::begin(a.ah.dgid.raw), std::end(a.ah.dgid.raw), gid.bytes.begin());
    return {{"qpn", a.dest_qp_num}, {"gid", to_text(gid)}};
}

using Snapshots = std::unordered_map<const Qp*, qp::Snapshot>;

/// Root and the user of rocid may see all sessions. Other users may see only their own sessions.
bool may_see(const State& state, const Client& viewer, const Session& s) {
    return state.privileged(viewer) || s.who.uid == viewer.uid;
}

/// Takes snapshots of the first kDetailedQps QPs that `viewer` may see. All engines work at the same time.
Snapshots take_snapshots(const State& state, const Client& viewer) {
    Snapshots out;
    std::deque<engine::QueryQp> queries;
    engine::Batch batch(state.engines);
    for (const auto& [id, s] : state.sessions) {
        if (!may_see(state, viewer, *s)) continue;
        s->qps.each([&](uint32_t, const Qp& qp) {
            if (out.size() >= kDetailedQps && !out.contains(&qp)) return;
            const auto [entry, is_new] = out.try_emplace(&qp);
            if (!is_new) return;  // an XRC target may be in several sessions; one snapshot is enough
            batch.submit(qp.spec().engine, &queries.emplace_back(engine::QueryQp{qp.engine_side.get(), &entry->second}));
        });
    }
    batch.wait();
    return out;
}

const char* repeat_name(qp::RepeatMode mode, bool reports) {
    constexpr const char* kNames[] = {"unknown", "selective", "go-back-n"};
    return reports && mode == qp::RepeatMode::selective ? "selective+reports" : kNames[size_t(mode)];
}

Json qp_json(const Snapshots& snapshots, uint32_t handle, const Qp& qp) {
    Json j = {{"handle", handle},
              {"qpn", qp.spec().qpn.value},
              {"type", qp::type_name(qp.spec().type)},
              {"engine", qp.spec().engine},
              {"pd", qp.spec().pd},
              {"send_depth", qp.spec().sq.depth},
              {"recv_depth", qp.spec().rq.depth}};
    const auto found = snapshots.find(&qp);
    if (found == snapshots.end()) return j;
    const qp::Snapshot& now = found->second;
    j["state"] = qp::state_name(now.state);
    if (qp.attr.ah.is_global != 0) j["peer"] = peer_json(qp.attr);
    if (qp.attr.path_mtu != 0) j["mtu"] = mtu_bytes(qp.attr.path_mtu);
    j["psn"] = {{"send", now.send_psn.value()}, {"unacked", now.unacked_psn.value()}, {"expected", now.expected_psn.value()}};
    j["probes"] = now.probes;
    j["repeat"] = repeat_name(now.repeat, now.reports);
    if (now.round_trip != 0) j["round_trip_us"] = double(now.round_trip) / 1000;
    j["limit"] = qp::kLimits[size_t(now.limit)].name;
    j["in_flight"] = (now.send_psn.value() - now.unacked_psn.value()) & kMask24;
    j["window"] = now.open_window;
    j["congestion"]["policy"] = cc::policy_name(now.policy);
    if (now.policy != cc::Policy::fixed_window) j["congestion"]["window"] = now.window;
    if (now.rate != 0) j["congestion"]["rate_mbps"] = double(now.rate) * 8 / 1000;
    j["send_queued"] = now.send_queued;
    j["recv_posted"] = now.recv_posted;
    j["frames_kept"] = now.kept;
    j["counters"] = counters_json(now.counters);
    return j;
}

/// Describes the memory of a session. slow_mrs is the number of MRs that rocid accesses by address, which is slow.
Json memory_json(const Session& s) {
    uint64_t bytes = 0, slow = 0, slow_ops = 0;
    s.mrs.each([&](uint32_t, const Mr& mr) {
        if (mr.region->length != ~uint64_t{0}) bytes += mr.region->length;  // implicit MRs and null MRs have the length 2^64 - 1
        if (mr.region->process == nullptr) return;
        ++slow;
        slow_ops += mr.region->slow_ops.load(std::memory_order_relaxed);
    });
    return {{"registered_bytes", bytes},
            {"mapped_bytes", s.mapped.bytes},
            {"arena_bytes", s.arena.bytes()},
            {"slow_mrs", slow},
            {"slow_ops", slow_ops}};
}

Json session_json(const State& state, const Session& s, const Snapshots& snapshots) {
    Json j = {{"id", s.id}, {"pid", s.who.pid}, {"uid", s.who.uid}, {"gid", s.who.gid}, {"program", s.program}};
    j["device"] = s.device ? Json(state.devices[*s.device].name) : Json(nullptr);
    j["objects"] = {{"pds", s.pds.count()},           {"regions", s.mapped.regions}, {"mrs", s.mrs.count()},
                    {"channels", s.channels.count()}, {"cqs", s.cqs.count()},        {"srqs", s.srqs.count()},
                    {"qps", s.qps.count()},           {"ahs", s.ahs.size()}};
    j["memory"] = memory_json(s);
    j["qps"] = Json::array();
    s.qps.each([&](uint32_t handle, const Qp& qp) { j["qps"].push_back(qp_json(snapshots, handle, qp)); });
    return j;
}

/// Returns totals of objects. After the end of a client, each total must have its previous value again. The totals include the
/// keys and numbers that are in use, so that a key or number that was not released with its object is visible as a leak.
Json totals_json(const State& state) {
    const Conductor::Totals t = totals_of(state);
    const rdma_cm::CmTotals cm = rdma_cm::cm_totals(state);
    return {{"sessions", t.sessions},
            {"pds", t.pds},
            {"regions", t.regions},
            {"mrs", t.mrs},
            {"mws", t.mws},
            {"channels", t.channels},
            {"cqs", t.cqs},
            {"srqs", t.srqs},
            {"qps", t.qps},
            {"ahs", t.ahs},
            {"mapped_bytes", t.mapped_bytes},
            {"arena_bytes", t.arena_bytes},
            {"keys", state.keys.in_use()},
            {"qp_numbers", state.qpns.in_use()},
            {"srq_numbers", state.srqns.in_use()},
            {"cm_ids", cm.ids},
            {"cm_channels", cm.channels},
            {"cm_groups", cm.groups}};
}

/// Returns the platform's part of the status. If the platform's text is not valid JSON, returns the text as a JSON string.
Json host_json(Platform& platform) {
    const std::string text = platform.host_status_json();
    if (text.empty()) return Json::object();
    Json j = Json::parse(text, nullptr, false);
    return j.is_discarded() ? Json(text) : j;
}

}  // namespace

Conductor::Totals totals_of(const State& state) {
    Conductor::Totals t{};
    t.sessions = state.sessions.size();
    for (const auto& [id, s] : state.sessions) {
        t.pds += s->pds.count();
        t.regions += s->mapped.regions;
        t.mrs += s->mrs.count();
        t.channels += s->channels.count();
        t.cqs += s->cqs.count();
        t.srqs += s->srqs.count();
        t.qps += s->qps.count();
        t.ahs += s->ahs.size();
        t.mws += s->mws.count();
        t.arena_bytes += s->arena.bytes();
        t.mapped_bytes += s->mapped.bytes;
    }
    return t;
}

namespace {

/// Returns the resources of each user whose sessions `viewer` may see. For root and the user of rocid, the result also includes
/// users without a session whose requests were refused.
Json limits_json(const State& state, const Client& viewer) {
    std::map<uint32_t, Client> users;
    for (const auto& [id, s] : state.sessions)
        if (may_see(state, viewer, *s)) users.try_emplace(s->who.uid, s->who);
    for (const auto& [uid, counts] : state.refused)
        if (state.privileged(viewer)) users.try_emplace(uid, Client{0, uid, uid});
    Json rows = Json::array();
    for (const auto& [uid, who] : users)
        for (const QuotaLine& q : quota_lines(state, who)) {
            rows.push_back({{"user", uid}, {"resource", q.resource}, {"used", q.used}, {"refused", q.refused}});
            if (q.limit) rows.back()["limit"] = *q.limit;
        }
    return rows;
}

/// Adds the parts of the status that concern all users. Called only for root and the user of rocid.
void add_whole(State& state, Json& root) {
    root["totals"] = totals_json(state);
    root["rdma_cm"] = rdma_cm::cm_json(state);
    root["neighbours"] = {{"known", state.neighbours->cache.size()},
                          {"questions", state.neighbours->cache.questions()},
                          {"waiting", state.neighbours->requests.size() + state.neighbours->ids.size()},
                          {"echoes_answered", state.neighbours->echoes},
                          {"address_conflicts", state.neighbours->conflicts}};
    root["host"] = host_json(state.platform);
}

}  // namespace

std::string status_text(State& state, const Client& viewer) {
    Json root;
    root["rocinante"] = {{"version", state.caps.firmware}, {"abi", abi::kAbiVersion}};
    root["devices"] = Json::array();
    for (const DeviceConfig& d : state.devices) root["devices"].push_back(device_json(d));
    root["engines"] = Json::array();
    for (size_t e = 0; e < state.engine_load.size(); ++e)
        root["engines"].push_back({{"index", e}, {"queues", state.engine_load[e]}});
    if (state.privileged(viewer)) add_whole(state, root);
    root["sessions"] = Json::array();
    const Snapshots snapshots = take_snapshots(state, viewer);
    for (const auto& [id, s] : state.sessions)
        if (may_see(state, viewer, *s)) root["sessions"].push_back(session_json(state, *s, snapshots));
    root["limits"] = limits_json(state, viewer);
    return root.dump(2, ' ', false, Json::error_handler_t::replace);
}

Outcome status(Call& c) {
    const int fd = c.state.platform.make_text_fd(status_text(c.state, c.session.who));
    if (fd < 0 && c.state.real_descriptors())
        return fail(EMFILE, "rocid could not make a file for the status; raise its descriptor limit");
    c.give(fd, false);
    return done();
}

Outcome counters(Call& c) {
    const int fd = c.state.platform.counter_page_fd();
    if (fd < 0 && c.state.real_descriptors()) return fail(ENOTSUP, "this rocid has no counter page");
    c.give(fd, true);
    return done();
}

}  // namespace roci::host::sessions
