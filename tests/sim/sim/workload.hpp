// Random work with invariants that must hold whatever the network does, as long as the network recovers. A failure names the seed
// that replays it.
#pragma once

#include <cstdint>
#include <string>

namespace roci::sim {

struct WorkloadResult {
    std::string failure;  ///< "" if every invariant held
    std::string summary;  ///< properties of the world
    uint64_t messages = 0, frames = 0, lost = 0, virtual_ns = 0, rounds = 0;
};

/// Runs one world from one seed. If `trace` is true, a failing world prints its last 400 frames to stderr.
WorkloadResult run_workload(uint64_t seed, bool trace = false);

}  // namespace roci::sim
