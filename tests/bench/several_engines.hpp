#pragma once

namespace roci::bench {

/// Runs `transport_bench --engines N [--crossed] [--quick]`: prints the message rate of N engines as a line of JSON. Each engine
/// has its own CPU. With --crossed every frame arrives at an engine other than that of its QP. Returns the program's exit status.
int several(int argc, char** argv);

}  // namespace roci::bench
