#pragma once

namespace roci::bench {

/// `--engines N [--crossed] [--quick]`: 64-byte WRITEs by N engines of one host at once, each with its QPs and their client on a
/// CPU. `crossed`: both ends of a QP are on different engines. What main returns.
int several_engines(int argc, char** argv);

}  // namespace roci::bench
