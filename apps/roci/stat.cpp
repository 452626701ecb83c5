#include "stat.hpp"
#include "ending_signals.hpp"
#include "fail.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// The number of devices or engines that fit side by side into 100 characters.
constexpr size_t kSideBySide = 2;
constexpr int kNameWidth = 32, kNumberWidth = 20, kRateWidth = 12;

struct Sample {
    Clock::time_point when;
    std::vector<std::vector<uint64_t>> devices, engines;
};

Sample take(const CounterReader& reader) {
    Sample s;
    s.when = Clock::now();
    for (uint32_t d = 0; d < reader.devices().size(); ++d) s.devices.push_back(reader.device_values(d));
    for (uint32_t e = 0; e < reader.engines(); ++e) s.engines.push_back(reader.engine_values(e));
    return s;
}

double rate(const StatColumn& c, size_t i, double seconds) { return double(c.now[i] - c.before[i]) / seconds; }

std::string rate_text(double r) {
    for (const char* unit : {"", "k", "M", "G"}) {
        if (r < 1000) return *unit == 0 ? fmt::format("{:.0f}", r) : fmt::format("{:.2f}{}", r, unit);
        r /= 1000;
    }
    return fmt::format("{:.2f}T", r);
}

std::vector<StatColumn> device_columns(const CounterReader& reader, const std::string& only, const Sample& before,
                                       const Sample& now) {
    std::vector<StatColumn> out;
    for (size_t d = 0; d < reader.devices().size(); ++d)
        if (only.empty() || only == reader.devices()[d]) out.push_back({reader.devices()[d], before.devices[d], now.devices[d]});
    return out;
}

std::vector<StatColumn> engine_columns(const Sample& before, const Sample& now) {
    std::vector<StatColumn> out;
    for (size_t e = 0; e < now.engines.size(); ++e)
        out.push_back({fmt::format("engine {}", e), before.engines[e], now.engines[e]});
    return out;
}

json columns_json(const std::vector<CounterLabel>& labels, const std::vector<StatColumn>& columns, double seconds) {
    json out = json::array();
    for (const StatColumn& c : columns) {
        json counters, rates = json::object();
        for (size_t i = 0; i < labels.size(); ++i) {
            counters[labels[i].name] = c.now[i];
            if (seconds != 0 && !labels[i].level) rates[labels[i].name] = rate(c, i, seconds);
        }
        out.push_back({{"name", c.name}, {"counters", counters}, {"per_second", rates}});
    }
    return out;
}

void show(const StatOptions& o, const CounterReader& reader, const Sample& before, const Sample& now) {
    const double seconds = o.interval == 0 ? 0 : std::chrono::duration<double>(now.when - before.when).count();
    const auto devices = device_columns(reader, o.device, before, now);
    const auto engines = engine_columns(before, now);
    if (o.as_json) {
        const json j = {{"pid", reader.pid()},
                        {"seconds", seconds},
                        {"devices", columns_json(reader.device_labels(), devices, seconds)},
                        {"engines", columns_json(reader.engine_labels(), engines, seconds)}};
        fmt::print("{}\n", j.dump());
    } else {
        if (o.watch && isatty(STDOUT_FILENO) != 0) fmt::print("\033[H\033[J");
        fmt::print("{}{}", stat_table("devices", reader.device_labels(), devices, seconds, o.all),
                   o.device.empty() ? stat_table("engines", reader.engine_labels(), engines, seconds, o.all) : "");
    }
    std::fflush(stdout);
}

enum class Pause : uint8_t { over, interrupted, rocid_ended };

/// Waits until the interval is over, a signal arrives, or rocid closes the connection.
Pause pause(int signals, int connection, double seconds) {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) return Pause::over;
        pollfd fds[] = {{signals, POLLIN, 0}, {connection, POLLIN, 0}};
        if (poll(fds, std::size(fds), int(left)) <= 0) continue;
        if (fds[0].revents != 0) return Pause::interrupted;
        if (fds[1].revents != 0) return Pause::rocid_ended;
    }
}

}  // namespace

std::string stat_table(const std::string& title, const std::vector<CounterLabel>& labels, const std::vector<StatColumn>& columns,
                       double seconds, bool all) {
    std::string out;
    for (size_t first = 0; first < columns.size(); first += kSideBySide) {
        const size_t end = std::min(columns.size(), first + kSideBySide);
        out += fmt::format("{:<{}}", title, kNameWidth);
        for (size_t c = first; c < end; ++c)
            out += fmt::format(" {:>{}} {:>{}}", columns[c].name, kNumberWidth, seconds == 0 ? "" : "per second", kRateWidth);
        out += "\n";
        for (size_t i = 0; i < labels.size(); ++i) {
            std::string line = fmt::format("  {:<{}}", labels[i].name, kNameWidth - 2);
            bool any = all;
            for (size_t c = first; c < end; ++c) {
                any = any || columns[c].now[i] != 0;
                const bool has_rate = seconds != 0 && !labels[i].level;
                line += fmt::format(" {:>{}} {:>{}}", columns[c].now[i], kNumberWidth,
                                    has_rate ? rate_text(rate(columns[c], i, seconds)) : "", kRateWidth);
            }
            line.erase(line.find_last_not_of(' ') + 1);
            if (any) out += line + "\n";
        }
        out += "\n";
    }
    return out;
}

int stat(const StatOptions& o) {
    if (o.watch && o.interval == 0) return fail("--watch needs an interval: --interval 1");
    std::string why;
    auto daemon = find_daemon(o.where, why);
    if (!daemon) return fail(why);
    const auto reader = CounterReader::open(daemon->session, why);
    if (!reader) return fail(why);
    if (!o.device.empty() && std::ranges::find(reader->devices(), o.device) == reader->devices().end())
        return fail(fmt::format("rocid at {} has no device '{}'; `roci status` lists them", daemon->socket, o.device));
    const UniqueFd signals = ending_signals();
    Sample before = take(*reader);
    do {
        const Pause how = pause(signals.get(), daemon->session.fd(), o.interval);
        if (how == Pause::rocid_ended) return fail("rocid has ended");
        if (how == Pause::interrupted) return 0;
        Sample now = take(*reader);
        show(o, *reader, before, now);
        before = std::move(now);
    } while (o.watch);
    return 0;
}

}  // namespace roci::cli
