#pragma once

namespace roci::bench {

/// Runs `transport_bench --in-program [--one-cpu]`: prints half the round trip of 64-byte SENDs between two threads that each run
/// the engine of their own QP, as lines of JSON. Returns the program's exit status.
int in_program(int argc, char** argv);

}  // namespace roci::bench
