#pragma once

namespace roci::bench {

/// Runs `transport_bench --engines N [--crossed] [--quick]`. Prints the message rate of N engines as a line of JSON.
/// Each engine has its own CPU. With --crossed, every frame arrives at an engine that does not own its QP. Returns
/// the exit status of the program.
int several(int argc, char** argv);

}  // namespace roci::bench
