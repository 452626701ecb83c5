#pragma once

namespace roci::bench {

/// Runs `transport_bench --in-program [--one-cpu]`. Two threads each run the engine of their own QP. Prints half of
/// the round trip of 64-byte SENDs between them as lines of JSON. Returns the exit status of the program.
int in_program(int argc, char** argv);

}  // namespace roci::bench
