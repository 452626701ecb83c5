#pragma once

namespace roci::bench {

/// Prints the cycles per message of each case as lines of JSON. If the program is linked to the transport with stage counting, it
/// prints them per stage. If it is linked to the product's transport, it prints the total. Returns the program's exit status.
int stages(bool quick);

}  // namespace roci::bench
