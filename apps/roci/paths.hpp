// Finds rocid and the client libraries, in the build tree or in the installation.
#pragma once

#include <string>
#include <vector>

namespace roci::cli {

/// Returns the path of the rocid to start. Searches, in this order: the folder of roci, the build tree, the folder sbin next to
/// roci's folder bin, Meson's installation folder, and PATH. Returns "" if there is no rocid.
std::string find_rocid();

/// Returns the folders with Rocinante's libibverbs.so.1 and librdmacm.so.1, for LD_LIBRARY_PATH. Returns an empty list if there
/// is no libibverbs.so.1.
std::vector<std::string> library_folders();

/// Returns the path of librocinante-view.so, or "" if it is not found.
std::string preload_library();

}  // namespace roci::cli
