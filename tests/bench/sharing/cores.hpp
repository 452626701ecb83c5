// A machine of a few cores in one thread: each core is a fiber with a clock of its own, and whoever is earliest goes on. Every
// access of instrumented code is a tick, a line that comes from another core many. So cores interleave as real ones do, down to
// the single access, and every run is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// Runs all bodies, one a core, to their end; their accesses go to `lines`.
void run_cores(Lines& lines, std::vector<std::function<void()>> bodies);

/// What instrumented code does (hooks.cpp). Nothing outside of run_cores().
void touch(const void* p, uint64_t n, Access kind, const void* where);

/// While one lives nothing is seen: the meter's own doings in the midst of a core's.
class Unseen {
public:
    Unseen();
    ~Unseen();
    Unseen(const Unseen&) = delete;

private:
    bool was_ = false;
};

/// The clock of the core that runs, in nanoseconds.
uint64_t core_now();

}  // namespace roci::sharing
