#include "top_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace roci::cli {
namespace {

constexpr size_t kNarrowest = 20;

std::string number(double v) {
    for (const char* unit : {"", "k", "M", "G"}) {
        if (v < 1000) return *unit == 0 ? fmt::format("{:.0f}", v) : fmt::format("{:.1f}{}", v, unit);
        v /= 1000;
    }
    return fmt::format("{:.1f}T", v);
}
std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }
std::string unless_zero(double v) { return v == 0 ? "-" : number(v); }

void append(std::vector<std::string>& to, std::vector<std::string> lines) {
    to.insert(to.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
}

std::vector<std::string> engine_table(const TopModel& m, size_t width, std::vector<std::string>& dropped) {
    std::vector<std::vector<std::string>> rows;
    for (const TopEngine& e : m.engines)
        rows.push_back({std::to_string(e.index), percent(e.busy), percent(e.asleep), percent(e.lost), number(e.rx_frames),
                        number(e.tx_frames), number(e.messages), unless_zero(e.cycles), std::to_string(e.queues)});
    return fit_table({{"engine", 0, true},
                      {"busy", 0, false},
                      {"asleep", 3, false},
                      {"lost", 4, false},
                      {"rx frames/s", 2, false},
                      {"tx frames/s", 2, false},
                      {"messages/s", 0, false},
                      {"cycles/message", 1, false},
                      {"queues", 5, false}},
                     rows, width, dropped);
}

std::vector<std::string> device_table(const TopModel& m, size_t width, std::vector<std::string>& dropped) {
    std::vector<std::vector<std::string>> rows;
    for (const TopDevice& d : m.devices)
        rows.push_back({d.name, number(d.tx_bits), number(d.rx_bits), number(d.tx_messages), number(d.rx_messages),
                        number(d.resent), number(d.errors)});
    return fit_table({{"device", 0, true},
                      {"tx bit/s", 0, false},
                      {"rx bit/s", 0, false},
                      {"tx messages/s", 3, false},
                      {"rx messages/s", 3, false},
                      {"resent/s", 1, false},
                      {"errors/s", 2, false}},
                     rows, width, dropped);
}

std::vector<std::string> qp_table(const TopModel& m, const TopView& view, std::vector<std::string>& dropped) {
    std::vector<TopQp> qps = m.qps;
    sort_top(qps, view.sort);
    if (qps.size() > view.rows) qps.resize(view.rows);
    std::vector<std::vector<std::string>> rows;
    for (const TopQp& q : qps) {
        const std::string limit = q.limit_share == 0 ? q.limit : fmt::format("{} {}", q.limit, percent(q.limit_share));
        rows.push_back(
            {std::to_string(q.qpn), limit, number(q.tx_bits), number(q.rx_bits), number(q.tx_messages), number(q.rx_messages),
             unless_zero(q.resent), q.round_trip_us == 0 ? "-" : fmt::format("{:.0f}", q.round_trip_us),
             q.window == 0 ? "-" : fmt::format("{}/{}", q.in_flight, q.window), q.device, q.program, std::to_string(q.pid)});
    }
    return fit_table({{"QP", 0, true},
                      {"limit", 0, true},
                      {"tx bit/s", 0, false},
                      {"rx bit/s", 2, false},
                      {"tx msg/s", 1, false},
                      {"rx msg/s", 3, false},
                      {"resent/s", 4, false},
                      {"RTT us", 5, false},
                      {"window", 6, false},
                      {"device", 7, true},
                      {"program", 8, true},
                      {"pid", 9, false}},
                     rows, view.width, dropped);
}

}  // namespace

std::vector<std::string> fit_table(const std::vector<TopColumn>& columns, const std::vector<std::vector<std::string>>& rows,
                                   size_t width, std::vector<std::string>& dropped) {
    std::vector<size_t> widths, shown;
    for (size_t c = 0; c < columns.size(); ++c) {
        size_t most = std::string_view(columns[c].title).size();
        for (const auto& row : rows) most = std::max(most, row[c].size());
        widths.push_back(most);
        shown.push_back(c);
    }
    const auto total = [&] {
        return std::accumulate(shown.begin(), shown.end(), size_t{0}, [&](size_t n, size_t c) { return n + widths[c] + 1; }) - 1;
    };
    while (shown.size() > 1 && total() > width) {
        const auto least =
            std::max_element(shown.begin(), shown.end(), [&](size_t a, size_t b) { return columns[a].rank < columns[b].rank; });
        if (columns[*least].rank == 0) break;
        dropped.emplace_back(columns[*least].title);
        shown.erase(least);
    }
    const auto line = [&](const auto& cell) {
        std::string out;
        for (const size_t c : shown) {
            if (!out.empty() || c != shown.front()) out += ' ';
            out += columns[c].left ? fmt::format("{:<{}}", cell(c), widths[c]) : fmt::format("{:>{}}", cell(c), widths[c]);
        }
        out.erase(out.find_last_not_of(' ') + 1);
        if (out.size() > width) out.resize(width);
        return out;
    };
    std::vector<std::string> lines{line([&](size_t c) { return std::string(columns[c].title); })};
    for (const auto& row : rows) lines.push_back(line([&](size_t c) { return row[c]; }));
    return lines;
}

std::vector<std::string> wrap(const std::string& text, size_t width) {
    std::vector<std::string> lines;
    std::string line;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        at = end + 1;
        if (!line.empty() && line.size() + 1 + word.size() > width) {
            lines.push_back(std::move(line));
            line = "  " + word;
        } else {
            line += (line.empty() ? "" : " ") + word;
        }
        while (line.size() > width) {
            lines.push_back(line.substr(0, width));
            line = "  " + line.substr(width);
        }
    }
    if (!line.empty()) lines.push_back(std::move(line));
    return lines;
}

std::vector<std::string> top_lines(const TopModel& m, const TopView& view) {
    TopView v = view;
    v.width = std::max(view.width, kNarrowest);
    std::vector<std::string> out, dropped;
    const auto name = std::ranges::find(kTopSorts, v.sort, &std::pair<std::string, TopSort>::second)->first;
    append(out, wrap(fmt::format("{:.1f} s, {} QPs, sorted by {}", m.seconds, m.qps.size() + m.not_shown, name), v.width));
    out.emplace_back();
    append(out, engine_table(m, v.width, dropped));
    out.emplace_back();
    append(out, device_table(m, v.width, dropped));
    out.emplace_back();
    append(out, qp_table(m, v, dropped));
    if (m.qps.size() > v.rows) out.push_back(fmt::format("... {} more QPs", m.qps.size() - v.rows));
    if (m.not_shown != 0)
        append(out, wrap(fmt::format("{} QPs without figures: rocid shows those of 1024", m.not_shown), v.width));
    out.emplace_back();
    for (const std::string& note : m.notes) append(out, wrap(note, v.width));
    if (!dropped.empty()) {
        std::string all;
        for (const std::string& d : dropped) all += (all.empty() ? "" : ", ") + d;
        append(out, wrap("left out, " + std::to_string(v.width) + " columns are too few: " + all, v.width));
    }
    return out;
}

}  // namespace roci::cli
