// Finds the other parts of Rocinante: in the build tree or in the installation.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// The rocid to start: next to roci, in the build tree, in sbin beside it, where Meson installed it, or in PATH. "" if there is
/// none.
std::string find_rocid();

/// Folders with our libibverbs.so.1 and librdmacm.so.1, for LD_LIBRARY_PATH. Empty if there is no libibverbs.so.1.
std::vector<std::string> library_folders();

}  // namespace roci::cli
