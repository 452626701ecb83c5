// Random work under invariants: what must hold whatever the network does, as long as it recovers. A failure names the seed that
// replays it.
#pragma once

#include <cstdint>
#include <string>

namespace roci::sim {

struct WorkloadResult {
    std::string failure;  ///< "": every invariant held
    std::string summary;  ///< what kind of world it was
    uint64_t messages = 0, frames = 0, lost = 0, virtual_ns = 0, rounds = 0;
};

/// One world from one seed. `trace`: frames and completions of a failing world are printed to stderr.
WorkloadResult run_workload(uint64_t seed, bool trace = false);

}  // namespace roci::sim
