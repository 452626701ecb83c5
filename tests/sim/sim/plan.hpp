// The properties of a random world. The seed determines them.
#pragma once

#include <string>

#include "sim/world.hpp"

namespace roci::sim {

enum class LoadKind : uint8_t { rc, xrc, uc, datagrams, windows, tags, endings, connections };
const char* load_name(LoadKind kind);

struct Plan {
    WorldOptions world;
    Faults faults;
    Pauses pauses;  ///< of each host
    bool spread_by_chance = false, blackouts = false;
    bool far = false;             ///< the round trip is long enough for the rules of far paths (cc/far.cpp)
    std::vector<LoadKind> loads;  ///< each load has two clients of its own
    uint32_t messages = 50;       ///< messages per direction of a load
    uint32_t largest = 8192;      ///< bytes of the longest message
    bool shared_receive = false;
    /// Returns true if the network may duplicate or reorder frames. An unreliable service (UC, UD) may then deliver a
    /// message twice or out of order.
    bool reorders() const { return faults.duplicate > 0 || faults.delay > 0 || faults.corrupt > 0 || spread_by_chance; }
    std::string text() const;
};

Plan make_plan(Rng& rng, uint64_t seed);
/// Chooses the parameters of a connection in a world with the plan `plan`.
PathOptions make_path(Rng& rng, const Plan& plan);

}  // namespace roci::sim
