// What kind of world a seed makes.
#pragma once

#include <string>

#include "sim/world.hpp"

namespace roci::sim {

enum class LoadKind : uint8_t { rc, xrc, uc, datagrams, windows, tags, endings, connections };
const char* load_name(LoadKind kind);

struct Plan {
    WorldOptions world;
    Faults faults;
    bool spread_by_chance = false, blackouts = false;
    std::vector<LoadKind> loads;  ///< each between two clients of its own
    uint32_t messages = 50;       ///< a direction of a load
    uint32_t largest = 8192;      ///< bytes of a message
    bool shared_receive = false;
    /// True if frames may be duplicated or reordered. An unreliable service (UC, UD) then delivers messages twice or out of
    /// order.
    bool reorders() const { return faults.duplicate > 0 || faults.delay > 0 || faults.corrupt > 0 || spread_by_chance; }
    std::string text() const;
};

Plan make_plan(Rng& rng, uint64_t seed);
/// How two QPs of such a world talk.
PathOptions make_path(Rng& rng, const Plan& plan);

}  // namespace roci::sim
