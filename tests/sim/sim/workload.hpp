// Random work with invariants. The invariants must hold whatever the network does, if the network recovers in the
// end. The text of a failure contains the seed that repeats the failure.
#pragma once

#include <cstdint>
#include <string>

namespace roci::sim {

struct WorkloadResult {
    std::string failure;  ///< empty if every invariant held
    std::string summary;  ///< properties of the world
    uint64_t messages = 0, frames = 0, lost = 0, virtual_ns = 0, rounds = 0;
};

/// Runs the world of one seed. If `trace` is true and the world fails before its shutdown, prints the
/// last 400 frames to stderr.
WorkloadResult run_workload(uint64_t seed, bool trace = false);

}  // namespace roci::sim
