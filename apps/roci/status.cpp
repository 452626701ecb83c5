#include "status.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "table.hpp"

namespace roci::cli {
namespace {

using json = nlohmann::ordered_json;

}  // namespace

std::string read_text(int fd) {
    std::string text;
    char buffer[64 * 1024];
    for (off_t at = 0;;) {
        const ssize_t n = pread(fd, buffer, sizeof buffer, at);  // the memfd's offset is where rocid stopped writing
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

/// A cell: a scalar unchanged, a list of scalars separated by commas, an object as its entries that are not zero.
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

/// Keys of all rows in the order in which they appear.
std::vector<std::string> columns_of(const json& rows) {
    std::vector<std::string> columns;
    for (const json& row : rows)
        for (const auto& [key, value] : row.items())
            if (!is_table(value) && std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
    return columns;
}

std::string section(const std::string& title, const json& value);

/// A table inside a row becomes a table of its own: "device roci0: gids".
std::string inner_tables(const std::string& title, const json& rows) {
    std::string out;
    for (size_t i = 0; i < rows.size(); ++i)
        for (const auto& [key, value] : rows[i].items())
            if (is_table(value))
                out += section(fmt::format("{} {}: {}", title, cell(rows[i].value("name", rows[i].value("id", json(i)))), key),
                               value);
    return out;
}

std::string rows_section(const std::string& title, const json& rows) {
    Table table(columns_of(rows));
    for (const json& row : rows) {
        std::vector<std::string> cells;
        for (const std::string& column : table.columns()) cells.push_back(row.contains(column) ? cell(row[column]) : "");
        table.add(std::move(cells));
    }
    return fmt::format("{}\n{}\n", title, table.text()) + inner_tables(title, rows);
}

std::string object_section(const std::string& title, const json& object) {
    Table facts({"", ""});
    std::string tables;
    for (const auto& [key, value] : object.items()) {
        if (is_table(value))
            tables += section(fmt::format("{} {}", title, key), value);
        else
            facts.add({key, cell(value)});
    }
    return (facts.empty() ? "" : fmt::format("{}\n{}\n", title, facts.text())) + tables;
}

std::string section(const std::string& title, const json& value) {
    if (is_table(value)) return rows_section(title, value);
    if (value.is_object()) return object_section(title, value);
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

std::string status_tables(const json& status) {
    std::string out;
    for (const auto& [key, value] : status.items())
        if (key != "limits") out += section(key, value);
    return out;
}

int status(const Where& where, bool as_json, bool limits) {
    std::string why;
    auto daemon = find_daemon(where, why);
    const std::string text = daemon ? fetch_status(daemon->session, why) : "";
    const json parsed = json::parse(text, nullptr, false);
    if (!text.empty() && as_json) {
        fmt::print("{}\n", text);
        return 0;
    }
    if (!text.empty() && limits && parsed.is_object() && parsed.contains("limits")) {
        fmt::print("{}", section("limits", parsed["limits"]));
        return 0;
    }
    if (!text.empty() && parsed.is_object()) {
        fmt::print("rocid at {}\n\n{}", daemon->socket, status_tables(parsed));
        return 0;
    }
    fmt::print(stderr, "roci: {}\n", why.empty() ? "rocid sent a status that is not JSON" : why);
    return 1;
}

}  // namespace roci::cli
