// Finds the other parts of Rocinante: in the build tree or in the installation.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// Returns the path of the rocid to start: in the folder of roci, in the build tree, in the sbin next to roci's bin, in Meson's
/// installation folder, or in PATH. Returns "" if there is none.
std::string find_rocid();

/// Returns the folders with our libibverbs.so.1 and librdmacm.so.1, for LD_LIBRARY_PATH. Returns none if there is no
/// libibverbs.so.1.
std::vector<std::string> library_folders();

}  // namespace roci::cli
