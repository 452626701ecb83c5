#pragma once

namespace roci::bench {

/// `--engines N [--crossed] [--quick]`: millions of messages a second of N engines on a CPU each, as a line of JSON. Crossed:
/// every frame arrives at another engine than its QP's. Returns the program's exit status.
int several(int argc, char** argv);

}  // namespace roci::bench
