#include "targets.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace roci::fuzz {
namespace {

#define ROCI_TARGET(name, shape, repair) \
    { #name, Shape::shape, name::run, name::seeds, name::outcomes, repair }
constexpr Target kTargets[] = {
    ROCI_TARGET(cm, records, nullptr),        ROCI_TARGET(config, text, nullptr),
    ROCI_TARGET(control, records, nullptr),   ROCI_TARGET(neighbour, bytes, neighbour::repair),
    ROCI_TARGET(parse, bytes, parse::repair), ROCI_TARGET(rings, records, nullptr),
    ROCI_TARGET(tm, records, nullptr),
};
#undef ROCI_TARGET

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(const std::string& name) {
    const auto at = std::ranges::find_if(kTargets, [&](const Target& t) { return name == t.name; });
    return at == std::end(kTargets) ? nullptr : at;
}

std::vector<Outcome> numbered(const std::vector<std::string>& names) {
    std::vector<Outcome> all;
    for (const std::string& name : names) all.push_back({all.size(), name});
    return all;
}

void fail(const char* what) {
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
}

}  // namespace roci::fuzz
