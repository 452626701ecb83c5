#include "top_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "qp/limit.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;
constexpr double kMuch = 0.05, kMost = 0.5, kFull = 0.9;
constexpr uint64_t kManyQps = 1000;

/// The rates of counters during an interval, by the counters' names. If rocid has no counter with the given name, the rate is 0.
class Figures {
public:
    Figures(const std::vector<CounterLabel>& labels, const std::vector<uint64_t>& before, const std::vector<uint64_t>& now,
            double seconds)
        : labels_(labels), before_(before), now_(now), seconds_(seconds) {}
    double rate(const char* name) const {
        const auto at = size_t(std::ranges::find(labels_, name, &CounterLabel::name) - labels_.begin());
        if (at >= now_.size() || at >= before_.size() || seconds_ <= 0) return 0;
        return double(int64_t(now_[at] - before_[at])) / seconds_;
    }

private:
    const std::vector<CounterLabel>& labels_;
    const std::vector<uint64_t>& before_;
    const std::vector<uint64_t>& now_;
    double seconds_;
};

double share(double nanos_per_second) { return std::clamp(nanos_per_second / kGiga, 0.0, 1.0); }

uint64_t queues_of(const json& status, uint64_t engine) {
    if (!status.contains("engines")) return 0;
    for (const json& e : status["engines"])
        if (e.value("index", uint64_t{~0ull}) == engine) return e.value("queues", uint64_t{0});
    return 0;
}

TopEngine engine_row(const CounterReader& reader, const TopReading& before, const TopReading& now, size_t e, double seconds) {
    const Figures f(reader.engine_labels(), before.engines[e], now.engines[e], seconds);
    TopEngine row;
    row.index = e;
    row.queues = queues_of(now.status, e);
    row.busy = share(f.rate("busy_ns"));
    row.asleep = share(f.rate("asleep_ns"));
    row.lost = share(f.rate("lost_ns"));
    row.rx_frames = f.rate("rx_frames");
    row.tx_frames = f.rate("tx_frames");
    row.sleeps = f.rate("sleeps");
    for (size_t d = 0; d < now.devices[e].size(); ++d) {
        const Figures of(reader.device_labels(), before.devices[e][d], now.devices[e][d], seconds);
        row.messages += of.rate("tx_messages") + of.rate("rx_messages");
    }
    if (row.messages > 0) row.cycles = row.busy * 1000 * reader.cycles_per_ms() / row.messages;
    return row;
}

std::vector<uint64_t> sum(const std::vector<std::vector<std::vector<uint64_t>>>& by_engine, size_t device) {
    std::vector<uint64_t> out = by_engine.front()[device];
    for (size_t e = 1; e < by_engine.size(); ++e)
        for (size_t i = 0; i < out.size(); ++i) out[i] += by_engine[e][device][i];
    return out;
}

TopDevice device_row(const CounterReader& reader, const TopReading& before, const TopReading& now, size_t d, double seconds) {
    const auto was = sum(before.devices, d), is = sum(now.devices, d);
    const Figures f(reader.device_labels(), was, is, seconds);
    TopDevice row;
    row.name = reader.devices()[d];
    row.tx_messages = f.rate("tx_messages");
    row.rx_messages = f.rate("rx_messages");
    row.tx_bits = f.rate("tx_octets") * 8;
    row.rx_bits = f.rate("rx_octets") * 8;
    row.resent = f.rate("retransmits");
    row.errors = f.rate("tx_errors") + f.rate("rx_errors_completed") + f.rate("rx_errors");
    return row;
}

using QpKey = std::pair<uint64_t, uint64_t>;  // session and QPN, because another session may reuse a QPN

std::map<QpKey, const json*> counters_of(const json& status) {
    std::map<QpKey, const json*> out;
    if (!status.contains("sessions")) return out;
    for (const json& s : status["sessions"])
        for (const json& q : s["qps"])
            if (q.contains("counters")) out[{s.value("id", uint64_t{0}), q.value("qpn", uint64_t{0})}] = &q["counters"];
    return out;
}

void set_rates(TopQp& row, const json& now, const json* before, double seconds) {
    const auto rate = [&](const char* name) {
        if (seconds <= 0) return 0.0;
        const uint64_t was = before != nullptr ? before->value(name, uint64_t{0}) : 0;
        return double(int64_t(now.value(name, uint64_t{0}) - was)) / seconds;
    };
    row.tx_bits = rate("tx_bytes") * 8;
    row.rx_bits = rate("rx_bytes") * 8;
    row.tx_messages = rate("tx_messages");
    row.rx_messages = rate("rx_messages");
    row.resent = rate("retransmits");
}

/// Sets row.limit to the most frequent limit of the samples, and row.limit_share to its share.
void set_limit(TopQp& row, const json& qp, const LimitTally& limits) {
    row.limit = qp.value("limit", "");
    const auto found = limits.find(uint32_t(row.qpn));
    if (found == limits.end()) return;
    uint32_t looks = 0, most = 0;
    for (const auto& [name, times] : found->second) {
        looks += times;
        if (times <= most) continue;
        most = times;
        row.limit = name;
    }
    row.limit_share = double(most) / double(std::max(looks, 1u));
}

TopQp qp_row(const json& session, const json& q) {
    TopQp row;
    row.qpn = q.value("qpn", uint64_t{0});
    row.type = q.value("type", "");
    row.state = q.value("state", "");
    row.program = session.value("program", "");
    row.pid = session.value("pid", int64_t{0});
    if (session["device"].is_string()) row.device = session["device"].get<std::string>();
    if (q.contains("peer")) row.peer = fmt::format("{}:{}", q["peer"].value("gid", ""), q["peer"].value("qpn", uint64_t{0}));
    row.round_trip_us = q.value("round_trip_us", 0.0);
    row.in_flight = q.value("in_flight", uint64_t{0});
    row.window = q.value("window", uint64_t{0});
    return row;
}

void add_qps(TopModel& model, const TopReading& before, const TopReading& now, const LimitTally& limits) {
    if (!now.status.contains("sessions")) return;
    const auto was = counters_of(before.status);
    for (const json& s : now.status["sessions"])
        for (const json& q : s["qps"]) {
            if (!q.contains("counters")) {
                ++model.not_shown;
                continue;
            }
            TopQp row = qp_row(s, q);
            const auto old = was.find({s.value("id", uint64_t{0}), row.qpn});
            set_rates(row, q["counters"], old == was.end() ? nullptr : old->second, model.seconds);
            set_limit(row, q, limits);
            model.qps.push_back(std::move(row));
        }
}

/// Adds a note about the QPs that were destroyed during the interval.
void add_ended_note(TopModel& model, const TopReading& before, const TopReading& now) {
    constexpr size_t kNamed = 4;
    auto ended = counters_of(before.status);
    if (now.status.contains("sessions"))
        for (const json& s : now.status["sessions"])
            for (const json& q : s["qps"]) ended.erase({s.value("id", uint64_t{0}), q.value("qpn", uint64_t{0})});
    if (ended.empty()) return;
    std::string names;
    size_t named = 0;
    for (const auto& [key, counters] : ended) {
        if (named++ == kNamed) break;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", key.second);
    }
    model.notes.push_back(fmt::format("destroyed in this interval: {} QP{} ({}{})", ended.size(), ended.size() == 1 ? "" : "s",
                                      names, ended.size() > kNamed ? ", ..." : ""));
}

void add_engine_notes(TopModel& model) {
    for (const TopEngine& e : model.engines) {
        if (e.lost >= kMuch)
            model.notes.push_back(fmt::format(
                "engine {} lost its CPU to other threads for {:.0f} % of the time: give it a CPU of its own (engine.cpus)",
                e.index, 100 * e.lost));
        if (e.asleep >= kMost && e.messages > 0 && e.sleeps > 0)
            model.notes.push_back(
                fmt::format("engine {} slept {:.0f} times a second, {:.0f} % of the time: a message that wakes it waits for "
                            "that; with a CPU of its own, engine.idle = \"spin\" keeps it awake",
                            e.index, e.sleeps, 100 * e.asleep));
        if (e.busy >= kFull)
            model.notes.push_back(fmt::format(
                "engine {} is busy for {:.0f} % of the time: more engines (engine.count) share its QPs", e.index, 100 * e.busy));
        if (e.queues > kManyQps)
            model.notes.push_back(
                fmt::format("engine {} serves {} queues: more engines (engine.count) share them", e.index, e.queues));
    }
}

void add_limit_notes(TopModel& model) {
    std::map<std::string, uint64_t> met;
    for (const TopQp& q : model.qps) ++met[q.limit];
    for (const qp::LimitText& l : qp::kLimits)
        if (const auto found = met.find(l.name); found != met.end())
            model.notes.push_back(
                fmt::format("limit \"{}\" ({} QP{}): {}", l.name, found->second, found->second == 1 ? "" : "s", l.text));
}

}  // namespace

const std::vector<std::pair<std::string, TopSort>> kTopSorts = {
    {"rate", TopSort::rate}, {"messages", TopSort::messages}, {"retransmissions", TopSort::retransmissions},
    {"rtt", TopSort::rtt},   {"window", TopSort::window},     {"limit", TopSort::limit}};

TopReading read_top(const CounterReader& reader, json status, double at) {
    TopReading r;
    r.at = at;
    r.status = std::move(status);
    for (uint32_t e = 0; e < reader.engines(); ++e) {
        r.engines.push_back(reader.engine_values(e));
        auto& of_engine = r.devices.emplace_back();
        for (uint32_t d = 0; d < reader.devices().size(); ++d) of_engine.push_back(reader.device_values_of(e, d));
    }
    return r;
}

void tally(LimitTally& into, const json& status) {
    if (!status.contains("sessions")) return;
    for (const json& s : status["sessions"])
        for (const json& q : s["qps"])
            if (q.contains("limit")) ++into[q.value("qpn", 0u)][q["limit"].get<std::string>()];
}

TopModel make_top(const CounterReader& reader, const TopReading& before, const TopReading& now, const LimitTally& limits) {
    TopModel m;
    m.seconds = now.at - before.at;
    for (size_t e = 0; e < now.engines.size(); ++e) m.engines.push_back(engine_row(reader, before, now, e, m.seconds));
    for (size_t d = 0; !now.devices.empty() && d < reader.devices().size(); ++d)
        m.devices.push_back(device_row(reader, before, now, d, m.seconds));
    add_qps(m, before, now, limits);
    add_ended_note(m, before, now);
    add_engine_notes(m);
    add_limit_notes(m);
    return m;
}

void sort_top(std::vector<TopQp>& qps, TopSort by) {
    const auto rank = [by](const TopQp& q) {
        switch (by) {
            case TopSort::messages:
                return q.tx_messages + q.rx_messages;
            case TopSort::retransmissions:
                return q.resent;
            case TopSort::rtt:
                return q.round_trip_us;
            case TopSort::window:
                return double(q.in_flight);
            default:
                return q.tx_bits + q.rx_bits;
        }
    };
    std::ranges::stable_sort(qps, [&](const TopQp& a, const TopQp& b) {
        if (by == TopSort::limit && a.limit != b.limit) return a.limit < b.limit;
        return std::tuple(-rank(a), a.qpn) < std::tuple(-rank(b), b.qpn);
    });
}

json top_json(const TopModel& m) {
    json out = {{"seconds", m.seconds}, {"engines", json::array()}, {"devices", json::array()}, {"qps", json::array()}};
    for (const TopEngine& e : m.engines)
        out["engines"].push_back({{"index", e.index},
                                  {"queues", e.queues},
                                  {"busy", e.busy},
                                  {"asleep", e.asleep},
                                  {"lost", e.lost},
                                  {"rx_frames_per_second", e.rx_frames},
                                  {"tx_frames_per_second", e.tx_frames},
                                  {"messages_per_second", e.messages},
                                  {"sleeps_per_second", e.sleeps},
                                  {"cycles_per_message", e.cycles}});
    for (const TopDevice& d : m.devices)
        out["devices"].push_back({{"name", d.name},
                                  {"tx_messages_per_second", d.tx_messages},
                                  {"rx_messages_per_second", d.rx_messages},
                                  {"tx_bits_per_second", d.tx_bits},
                                  {"rx_bits_per_second", d.rx_bits},
                                  {"retransmits_per_second", d.resent},
                                  {"errors_per_second", d.errors}});
    for (const TopQp& q : m.qps)
        out["qps"].push_back({{"qpn", q.qpn},
                              {"type", q.type},
                              {"state", q.state},
                              {"program", q.program},
                              {"pid", q.pid},
                              {"device", q.device},
                              {"peer", q.peer},
                              {"tx_bits_per_second", q.tx_bits},
                              {"rx_bits_per_second", q.rx_bits},
                              {"tx_messages_per_second", q.tx_messages},
                              {"rx_messages_per_second", q.rx_messages},
                              {"retransmits_per_second", q.resent},
                              {"round_trip_us", q.round_trip_us},
                              {"in_flight", q.in_flight},
                              {"window", q.window},
                              {"limit", q.limit},
                              {"limit_share", q.limit_share}});
    out["not_shown"] = m.not_shown;
    out["notes"] = m.notes;
    return out;
}

}  // namespace roci::cli
