#pragma once

namespace roci::bench {

/// `--engines N [--crossed] [--quick]`: the message rate of N engines, each on its own CPU, as a line of JSON. Crossed: every
/// frame arrives at an engine other than that of its QP. Returns the program's exit status.
int several(int argc, char** argv);

}  // namespace roci::bench
