// A machine with a few cores, simulated in one thread. Each core is a fiber with its own clock. The core with the
// earliest clock runs. An access of instrumented code takes one tick. A fetch of a line from another core takes many
// ticks. So the accesses of the cores alternate as on real cores. Every run is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lines.hpp"

namespace roci::sharing {

/// Runs each body on a core until all bodies have returned. Reports their accesses to `lines`.
void run_cores(Lines& lines, std::vector<std::function<void()>> bodies);

/// Reports an access to the model. Instrumented code calls this function (hooks.cpp). Outside run_cores() it does
/// nothing.
void touch(const void* p, uint64_t n, Access kind, const void* where);

/// While an object of this class exists, accesses are not reported. Used by code of the benchmark that runs on a
/// core.
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
