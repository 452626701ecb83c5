// A machine with a few cores in one thread. Each core is a fiber with its own clock, and the core with the earliest time runs. An
// access of instrumented code takes one tick, and a line from another core takes many. So the accesses of the cores interleave as
// on real cores, and every run is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// Runs all bodies, one per core, to their end; reports their accesses to `lines`.
void run_cores(Lines& lines, std::vector<std::function<void()>> bodies);

/// Called by instrumented code (hooks.cpp). Does nothing outside of run_cores().
void touch(const void* p, uint64_t n, Access kind, const void* where);

/// Suspends the model during its lifetime, for the meter's own code within a core.
class Unseen {
public:
    Unseen();
    ~Unseen();
    Unseen(const Unseen&) = delete;

private:
    bool was_ = false;
};

/// The clock of the running core, in nanoseconds.
uint64_t core_now();

}  // namespace roci::sharing
