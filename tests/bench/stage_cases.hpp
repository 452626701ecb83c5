#pragma once

namespace roci::bench {

/// Prints the cycles of a message in each case as lines of JSON: per stage, if linked to the transport with stage counting; in
/// total, if linked to the product's transport. Returns the program's exit status.
int stages(bool quick);

}  // namespace roci::bench
