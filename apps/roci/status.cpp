#include "status.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "fail.hpp"
#include "table.hpp"
#include "top_text.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kLongCell = 40, kLeastText = 20;

}  // namespace

std::string read_text(int fd) {
    std::string text;
    char buffer[64 * 1024];
    for (off_t at = 0;;) {
        const ssize_t n = pread(fd, buffer, sizeof buffer, at);  // rocid's write left the memfd's file offset at the end
        if (n <= 0) return text;
        text.append(buffer, size_t(n));
        at += n;
    }
}

namespace {

bool is_table(const json& value) { return value.is_array() && !value.empty() && value.front().is_object(); }

bool says_nothing(const json& value) {
    return value.is_null() || value == 0 || (value.is_string() && value.get_ref<const std::string&>().empty());
}

/// Returns the text of a cell. Commas separate the elements of a list. Entries of an object that are zero or empty are omitted.
std::string cell(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_structured()) return value.dump();
    const char* const between = value.is_object() ? " " : ", ";
    std::string out;
    for (const auto& [key, inner] : value.items()) {
        if (value.is_object() && says_nothing(inner)) continue;
        if (!out.empty()) out += between;
        if (value.is_object()) out.append(key).append("=");
        out += cell(inner);
    }
    return out;
}

/// Breaks `text` into lines of at most `width` characters, including `indent` spaces at the beginning of each line.
std::string wrapped(const std::string& text, size_t indent, size_t width) {
    const std::string margin(indent, ' ');
    std::string out;
    for (const std::string& line : wrap(text, width - indent)) out += margin + line + "\n";
    return out;
}

/// Returns true for an object whose cell would be long. Such an object is printed on separate lines.
bool is_long(const json& value) { return value.is_object() && cell(value).size() > kLongCell; }

/// Returns the keys of all rows in the order in which they appear. Keys whose values inner_tables() prints below the table are
/// omitted.
std::vector<std::string> columns_of(const json& rows) {
    std::vector<std::string> columns;
    std::set<std::string> below;
    for (const json& row : rows)
        for (const auto& [key, value] : row.items()) {
            if (std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
            if (is_table(value) || is_long(value)) below.insert(key);
        }
    std::erase_if(columns, [&](const std::string& c) { return below.contains(c); });
    return columns;
}

std::string section(const std::string& title, const json& value, size_t width);
std::string object_section(const std::string& title, const json& object, size_t width);

/// Returns a name for a row: the value of the first of the keys name, id, qpn and index that the row has, or else the row's
/// index.
std::string name_of(const json& row, size_t index) {
    for (const char* key : {"name", "id", "qpn", "index"})
        if (row.contains(key)) return cell(row[key]);
    return std::to_string(index);
}

/// Returns the tables and the long objects inside the rows as separate sections, with titles such as "device roci0: gids".
std::string inner_tables(const std::string& title, const json& rows, size_t width) {
    std::string out;
    std::set<std::string> long_keys;
    for (const json& row : rows)
        for (const auto& [key, value] : row.items())
            if (is_long(value)) long_keys.insert(key);
    for (size_t i = 0; i < rows.size(); ++i)
        for (const auto& [key, value] : rows[i].items()) {
            const std::string whole = fmt::format("{} {}: {}", title, name_of(rows[i], i), key);
            if (is_table(value)) out += section(whole, value, width);
            if (long_keys.contains(key) && !cell(value).empty())
                out += fmt::format("{}\n{}\n", whole, wrapped(cell(value), 2, width));
        }
    return out;
}

bool fits(const std::string& text, size_t width) {
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        if (end - begin > width) return false;
        begin = end + 1;
    }
    return true;
}

/// Returns the rows as a table, followed by their inner tables. If the table does not fit into the width, returns one section per
/// row.
std::string rows_section(const std::string& title, const json& rows, size_t width) {
    Table table(columns_of(rows));
    for (const json& row : rows) {
        std::vector<std::string> cells;
        for (const std::string& column : table.columns()) cells.push_back(row.contains(column) ? cell(row[column]) : "");
        table.add(std::move(cells));
    }
    const std::string text = table.text(width);
    if (fits(text, width)) return fmt::format("{}\n{}\n", title, text) + inner_tables(title, rows, width);
    std::string out;
    for (size_t i = 0; i < rows.size(); ++i)
        out += object_section(fmt::format("{} {}", title, name_of(rows[i], i)), rows[i], width);
    return out;
}

std::string object_section(const std::string& title, const json& object, size_t width) {
    size_t longest = 0;
    for (const auto& [key, value] : object.items())
        if (!is_table(value)) longest = std::max(longest, key.size());
    std::string facts, tables;
    for (const auto& [key, value] : object.items()) {
        if (is_table(value)) {
            tables += section(fmt::format("{} {}", title, key), value, width);
            continue;
        }
        if (longest + 3 + kLeastText > width) {  // the value is on separate lines below the key
            facts += fmt::format("  {}\n{}", key, wrapped(cell(value), 4, width));
            continue;
        }
        std::string text = wrapped(cell(value), longest + 3, width);
        if (text.empty()) text = "\n";
        facts +=
            fmt::format("  {:<{}}", key, longest + (text == "\n" ? 0 : 1)) + (text == "\n" ? text : text.substr(longest + 3));
    }
    return (facts.empty() ? "" : fmt::format("{}\n{}\n", title, facts)) + tables;
}

std::string section(const std::string& title, const json& value, size_t width) {
    if (is_table(value)) return rows_section(title, value, width);
    if (value.is_object()) return object_section(title, value, width);
    const std::string text = cell(value);
    return fmt::format("{}\n  {}\n\n", title, text.empty() ? "none" : text);
}

}  // namespace

std::string fetch_status(ControlClient& client, std::string& why) {
    Answer answer = client.request(abi::Op::status);
    why = answer.reason;
    if (answer.error != 0 || answer.fds.empty()) return {};
    return read_text(answer.fds.back().get());
}

json filter_status(const json& status, const StatusOptions& o) {
    json out = {{"devices", json::array()}, {"sessions", json::array()}};
    for (const json& d : status.value("devices", json::array()))
        if (o.device.empty() || d.value("name", "") == o.device) out["devices"].push_back(d);
    for (json s : status.value("sessions", json::array())) {
        if (!o.device.empty() && s.value("device", json()) != o.device) continue;
        if (o.user && s.value("uid", int64_t{-1}) != *o.user) continue;
        if (o.pid && s.value("pid", int64_t{-1}) != *o.pid) continue;
        if (o.qpn) {
            json qps = json::array();
            for (const json& q : s["qps"])
                if (q.value("qpn", 0u) == *o.qpn) qps.push_back(q);
            if (qps.empty()) continue;
            s["qps"] = std::move(qps);
        }
        out["sessions"].push_back(std::move(s));
    }
    return out;
}

std::string qp_page(const json& status, size_t width) {
    std::string out;
    for (const json& s : status["sessions"])
        for (const json& q : s["qps"]) {
            json facts = q;
            facts.erase("counters");
            facts["program"] = fmt::format("{} (pid {}, user {})", s.value("program", ""), s.value("pid", int64_t{0}),
                                           s.value("uid", int64_t{0}));
            facts["device"] = s.value("device", json());
            out += object_section(fmt::format("QP {}", q.value("qpn", 0u)), facts, width);
            if (q.contains("counters")) out += object_section("counters", q["counters"], width);
        }
    return out;
}

std::string status_tables(const json& status, size_t width) {
    std::string out;
    for (const auto& [key, value] : status.items())
        if (key != "limits") out += section(key, value, width);
    return out;
}

namespace {

/// Returns the width of the output: the width of the terminal if it is smaller than kStatusWidth, otherwise kStatusWidth.
size_t output_width() {
    constexpr size_t kNarrowest = 30;
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kStatusWidth;
    return std::clamp<size_t>(size.ws_col, kNarrowest, kStatusWidth);
}

int filtered(const StatusOptions& o, const json& status) {
    const size_t width = output_width();
    const json left = filter_status(status, o);
    if (left["devices"].empty()) return fail(fmt::format("this rocid has no device '{}'", o.device));
    if (o.qpn && left["sessions"].empty())
        return fail(fmt::format("none of the queue pairs that you may see here has the number {}", *o.qpn));
    if (o.as_json)
        fmt::print("{}\n", left.dump(2, ' ', false, json::error_handler_t::replace));
    else
        fmt::print("{}", o.qpn ? qp_page(left, width)
                               : section("devices", left["devices"], width) + section("sessions", left["sessions"], width));
    return 0;
}

}  // namespace

int status(const StatusOptions& o) {
    std::string why;
    auto daemon = find_daemon(o.where, why);
    const std::string text = daemon ? fetch_status(daemon->session, why) : "";
    if (text.empty()) return fail(why.empty() ? "rocid sent no status" : why);
    if (o.as_json && !o.filters()) {
        fmt::print("{}\n", text);
        return 0;
    }
    const json parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object()) return fail("rocid sent a status that is not JSON");
    if (o.filters()) return filtered(o, parsed);
    const size_t width = output_width();
    if (o.limits && parsed.contains("limits"))
        fmt::print("{}", section("limits", parsed["limits"], width));
    else
        fmt::print("{}", wrapped("rocid at " + daemon->socket, 0, width) + "\n" + status_tables(parsed, width));
    return 0;
}

}  // namespace roci::cli
