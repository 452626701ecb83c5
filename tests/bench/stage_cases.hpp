#pragma once

namespace roci::bench {

/// Prints the cycles per message of each case as lines of JSON. In transport_stages the figures are per stage, in
/// transport_bench they are totals. Returns the exit status of the program.
int stages(bool quick);

}  // namespace roci::bench
