// A machine with a few cores, simulated in one thread. Each core is a fiber with its own clock, and the core with the earliest
// time runs. An access of instrumented code takes one tick. To fetch a line from another core takes many ticks. So the accesses
// of the cores interleave as on real cores, and every run is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// Runs all bodies to their end, one per core, and reports their accesses to `lines`.
void run_cores(Lines& lines, std::vector<std::function<void()>> bodies);

/// Called by instrumented code (hooks.cpp). Does nothing outside run_cores().
void touch(const void* p, uint64_t n, Access kind, const void* where);

/// Suspends the model while the object exists. The benchmark's own code that runs on a core uses it.
class Unseen {
public:
    Unseen();
    ~Unseen();
    Unseen(const Unseen&) = delete;

private:
    bool was_ = false;
};

/// Returns the clock of the running core, in nanoseconds.
uint64_t core_now();

}  // namespace roci::sharing
