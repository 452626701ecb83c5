#include "user_limits.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace roci::rocid {
namespace {

using Whom = host::LimitRule::Whom;

struct Subject {
    Whom whom;
    uint32_t id;
};

template <class T>
std::optional<T> number(std::string_view text) {
    T n{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return n;
}

std::vector<Subject> group(const std::string& name) {
    const auto id = number<gid_t>(name);
    const struct group* g = id ? getgrgid(*id) : getgrnam(name.c_str());
    if (g == nullptr && !id) throw std::invalid_argument(fmt::format("no group '{}'", name));
    std::vector<Subject> out{{Whom::group, g != nullptr ? g->gr_gid : *id}};
    std::vector<std::string> members;
    for (char** m = g != nullptr ? g->gr_mem : nullptr; m != nullptr && *m != nullptr; ++m) members.emplace_back(*m);
    for (const std::string& m : members)
        if (const passwd* p = getpwnam(m.c_str())) out.push_back({Whom::user, p->pw_uid});
    return out;
}

std::vector<Subject> subjects(const std::string& name) {
    if (name == "*") return {{Whom::everybody, 0}};
    if (name.starts_with('@')) return group(name.substr(1));
    if (const auto id = number<uid_t>(name)) return {{Whom::user, *id}};
    const passwd* p = getpwnam(name.c_str());
    if (p == nullptr) throw std::invalid_argument(fmt::format("no user '{}'", name));
    return {{Whom::user, p->pw_uid}};
}

std::string names() {
    std::string out;
    for (const host::LimitName& l : host::kUserLimits) out += (out.empty() ? "" : ", ") + std::string(l.name);
    return out;
}

void parse_one(const std::string& text, std::vector<host::LimitRule>& rules) {
    std::istringstream words(text);
    std::string word;
    if (!(words >> word)) throw std::invalid_argument("an empty text");
    const std::vector<Subject> who = subjects(word);
    bool any = false;
    for (; words >> word; any = true) {
        const size_t equals = std::min(word.find('='), word.size());
        const auto limit = std::ranges::find(host::kUserLimits, word.substr(0, equals),
                                             [](const host::LimitName& l) { return std::string(l.name); });
        if (limit == std::end(host::kUserLimits))
            throw std::invalid_argument(fmt::format("no limit '{}'; there are {}", word.substr(0, equals), names()));
        const auto value = number<uint64_t>(std::string_view(word).substr(std::min(equals + 1, word.size())));
        if (!value) throw std::invalid_argument(fmt::format("'{}': write {}=number", word, limit->name));
        for (const Subject& s : who) rules.push_back({s.whom, s.id, limit->limit, *value});
    }
    if (!any) throw std::invalid_argument(fmt::format("'{}' names no limit; there are {}", text, names()));
}

}  // namespace

std::vector<host::LimitRule> parse_user_limits(const std::vector<std::string>& texts) {
    std::vector<host::LimitRule> rules;
    for (const std::string& text : texts) parse_one(text, rules);
    return rules;
}

}  // namespace roci::rocid
