#pragma once

namespace roci::bench {

/// Cycles of a message in each case, as lines of JSON: by stage, if this is linked to the transport that counts its stages; all
/// together, if it is linked to the one that ships. Returns the program's exit status.
int stages(bool quick);

}  // namespace roci::bench
