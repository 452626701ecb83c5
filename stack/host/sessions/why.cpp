// `roci why`: reports on one QP and, if the caller may see the peer QP, on the peer QP. `roci why --cm` reports on the rdma_cm
// ids that the caller may see.
#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "host/objects/handlers.hpp"
#include "host/rdma_cm/journal.hpp"
#include "host/sessions/handlers.hpp"
#include "host/sessions/story.hpp"

namespace roci::host::sessions {
namespace {

bool caller_may_see(const Call& c, uint32_t owner) {
    const uint32_t uid = c.session.who.uid;
    return uid == 0 || uid == c.state.platform.uid() || uid == owner;
}

uint64_t slow_ops(const Session& s) {
    uint64_t n = 0;
    s.mrs.each([&](uint32_t, const Mr& mr) {
        if (mr.region->process != nullptr) n += mr.region->slow_ops.load(std::memory_order_relaxed);
    });
    return n;
}

/// Counts the QPs that receive on the device of `f`, and the receiving QPs that have detected PSN gaps. Examines at most kMost
/// QPs, and only QPs that the caller may see. Counts an XRC target with several handles once.
void count_receivers(const Call& c, QpFacts& f) {
    constexpr size_t kMost = 1024;
    std::unordered_map<const Qp*, qp::Snapshot> seen;
    std::deque<engine::QueryQp> queries;
    engine::Batch batch(c.state.engines);
    for (const auto& [id, s] : c.state.sessions) {
        if (!caller_may_see(c, s->who.uid)) continue;
        s->qps.each([&](uint32_t, const Qp& qp) {
            if (qp.spec().port != f.device || seen.size() >= kMost) return;
            const auto [entry, is_new] = seen.try_emplace(&qp);
            if (!is_new) return;
            batch.submit(qp.spec().engine, &queries.emplace_back(engine::QueryQp{qp.engine_side.get(), &entry->second}));
        });
    }
    batch.wait();
    for (const auto& [qp, s] : seen) {
        const qp::EventCounters& events = s.counters.events;
        if (events.rx_messages == 0) continue;
        ++f.receiving;
        if (events.out_of_order + events.seq_nak_sent != 0) ++f.disturbed;
    }
}

QpFacts live_facts(const Call& c, const Session& s, const Qp& qp) {
    const State& state = c.state;
    QpFacts f = objects::facts_of(s, qp);
    engine::QueryQp query{.qp = qp.engine_side.get(), .snapshot = &f.now, .journal = &f.journal};
    state.engines.execute(qp.spec().engine, query);
    f.slow_ops = slow_ops(s);
    f.engine_qps = state.engine_load[qp.spec().engine];
    count_receivers(c, f);
    return f;
}

/// Returns the data of an existing or destroyed QP. Returns nullopt if the caller may not see the QP, or if neither a session nor
/// the archive contains the QP.
std::optional<QpFacts> find_facts(const Call& c, uint32_t qpn) {
    for (const auto& [id, s] : c.state.sessions) {
        const Qp* found = nullptr;
        s->qps.each([&](uint32_t, const Qp& qp) {
            if (qp.spec().qpn.value == qpn) found = &qp;
        });
        if (found != nullptr) return caller_may_see(c, s->who.uid) ? std::optional(live_facts(c, *s, *found)) : std::nullopt;
    }
    const QpFacts* gone = c.state.gone.find(qpn);
    return gone != nullptr && caller_may_see(c, gone->uid) ? std::optional(*gone) : std::nullopt;
}

const DeviceConfig* device_with(const State& state, const abi::GidValue& gid) {
    for (const DeviceConfig& d : state.devices)
        for (const Gid& g : d.gids)
            if (!g.is_zero() && std::equal(g.bytes.begin(), g.bytes.end(), std::begin(gid.raw))) return &d;
    return nullptr;
}

std::string other_end(const Call& c, const QpFacts& qp) {
    if (qp.type == qp::Type::ud || qp.attr.ah.is_global == 0) return "";
    const DeviceConfig* device = device_with(c.state, qp.attr.ah.dgid);
    if (device == nullptr) return "the other end is on another machine: `roci why` there tells its side\n";
    const auto peer = find_facts(c, qp.attr.dest_qp_num);
    if (!peer || c.state.devices[peer->device].name != device->name)
        return fmt::format("the other end: no QP of yours on {} has the destination QP number {}\n", device->name,
                           qp.attr.dest_qp_num);
    std::string out;
    for (const std::string& m : mismatches(qp, *peer, c.state.devices[qp.device], *device))
        out += fmt::format("the ends do not fit: {}\n", m);
    return out + "\nthe other end:\n" + story_of(*peer, device->name);
}

}  // namespace

Outcome why(Call& c) {
    const auto in = c.in<abi::WhyRequest>();
    std::string text;
    if (in.connections != 0)
        text = rdma_cm::connections_text(c.state, c.session.who);
    else if (const auto qp = find_facts(c, in.qpn))
        text = story_of(*qp, c.state.devices[qp->device].name) + rdma_cm::connection_text(c.state, c.session.who, in.qpn) +
               other_end(c, *qp);
    else
        return fail(ENOENT, "no queue pair of user {} has the number {}, and none of the destroyed ones that failed had it",
                    c.session.who.uid, in.qpn);
    const int fd = c.state.platform.make_text_fd(text);
    if (fd < 0 && c.state.real_descriptors()) return fail(EMFILE, "rocid could not make a file for the answer");
    c.give(fd, false);
    return done();
}

}  // namespace roci::host::sessions
