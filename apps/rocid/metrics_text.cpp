#include "metrics_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/counters.hpp"
#include "qp/counters.hpp"

namespace roci::rocid {
namespace {

using nlohmann::json;

/// Returns the text as the value of an OpenMetrics label: escapes backslashes and quotes, and replaces line feeds by spaces.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || c == '"') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

void family(std::string& out, const std::string& name, bool counter, const std::string& help) {
    out += fmt::format("# TYPE {} {}\n# HELP {} {}\n", name, counter ? "counter" : "gauge", name, help);
}

/// Adds the counters of devices. A device has one port, number 1. The label `port` has the same name as in other exporters.
void device_families(std::string& out, const MetricsSample& s) {
    for (size_t i = 0; i < qp::kDeviceCounterCount; ++i) {
        const std::string name = std::string("roci_device_") + qp::kDeviceCounters[i].name;
        family(out, name, true, qp::kDeviceCounters[i].text);
        for (const auto& d : s.devices)
            out += fmt::format("{}_total{{device=\"{}\",port=\"1\"}} {}\n", name, escaped(d.name), d.values[i]);
    }
}

void engine_family(std::string& out, const MetricsSample& s, size_t i, const std::string& counter, bool level, const char* help) {
    const std::string name = "roci_engine_" + counter;
    family(out, name, !level, help);
    for (size_t e = 0; e < s.engines.size(); ++e)
        out += fmt::format("{}{}{{engine=\"{}\"}} {}\n", name, level ? "" : "_total", e, s.engines[e][i]);
}

void engine_families(std::string& out, const MetricsSample& s) {
    for (size_t i = 0; i < engine::kCounters; ++i)
        engine_family(out, s, i, engine::kCounterTexts[i].name, engine::is_level(engine::Counter(i)),
                      engine::kCounterTexts[i].text);
    for (size_t v = 0; v < engine::kVerdicts; ++v)
        engine_family(out, s, engine::kCounters + v, engine::verdict_counter(wire::Verdict(v)), false,
                      "frames by what the parser found");
}

struct User {
    uint64_t sessions = 0, qps = 0, mrs = 0, registered = 0;
};

void user_families(std::string& out, const json& sessions) {
    std::map<uint64_t, User> users;
    for (const json& s : sessions) {
        User& u = users[s.value("uid", uint64_t{0})];
        ++u.sessions;
        u.qps += s["objects"].value("qps", uint64_t{0});
        u.mrs += s["objects"].value("mrs", uint64_t{0});
        u.registered += s["memory"].value("registered_bytes", uint64_t{0});
    }
    struct Row {
        const char* name;
        uint64_t User::*value;
        const char* help;
    };
    static constexpr Row kRows[] = {{"roci_user_sessions", &User::sessions, "open devices of a user's programs"},
                                    {"roci_user_qps", &User::qps, "queue pairs of a user"},
                                    {"roci_user_mrs", &User::mrs, "memory regions of a user"},
                                    {"roci_user_registered_bytes", &User::registered, "bytes that a user's memory regions name"}};
    for (const Row& r : kRows) {
        family(out, r.name, false, r.help);
        for (const auto& [uid, u] : users) out += fmt::format("{}{{uid=\"{}\"}} {}\n", r.name, uid, u.*r.value);
    }
}

struct QpRow {
    std::string labels;
    uint64_t bytes = 0;
    const json* counters = nullptr;
};

void qp_families(std::string& out, const json& sessions) {
    std::vector<QpRow> rows;
    for (const json& s : sessions)
        for (const json& q : s["qps"]) {
            if (!q.contains("counters")) continue;
            const std::string device = s["device"].is_string() ? s["device"].get<std::string>() : "";
            rows.push_back({fmt::format("qpn=\"{}\",device=\"{}\",uid=\"{}\"", q["qpn"].get<uint64_t>(), escaped(device),
                                        s.value("uid", uint64_t{0})),
                            q["counters"].value("tx_bytes", uint64_t{0}) + q["counters"].value("rx_bytes", uint64_t{0}),
                            &q["counters"]});
        }
    std::ranges::stable_sort(rows, std::greater{}, &QpRow::bytes);
    if (rows.size() > kMostQpSeries) rows.resize(kMostQpSeries);
    for (const qp::CounterInfo& c : qp::kQpCounters) {
        const std::string name = std::string("roci_qp_") + c.name;
        family(out, name, true, c.text);
        for (const QpRow& r : rows)
            out += fmt::format("{}_total{{{}}} {}\n", name, r.labels, r.counters->value(c.name, uint64_t{0}));
    }
}

}  // namespace

std::string metrics_text(const MetricsSample& s) {
    std::string out;
    device_families(out, s);
    engine_families(out, s);
    const json status = json::parse(s.status, nullptr, false);
    if (status.is_object() && status.contains("sessions")) {
        user_families(out, status["sessions"]);
        qp_families(out, status["sessions"]);
    }
    return out + "# EOF\n";
}

}  // namespace roci::rocid
