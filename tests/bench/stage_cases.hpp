#pragma once

namespace roci::bench {

/// Prints the cycles per message of each case as lines of JSON: per stage in transport_stages, the total in transport_bench.
/// Returns the program's exit status.
int stages(bool quick);

}  // namespace roci::bench
