// A program's own view of /sys and /dev: the paths by which programs recognise an RDMA device, made in a mount namespace of its
// own. Other programs do not see them, and they disappear with the program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sysfs_view.hpp"

namespace roci::cli {

/// Moves the calling process into a new mount namespace (as root at once, else inside a user namespace that keeps its uid), and
/// adds `files` as /sys/class/infiniband, and a stand-in for each of `devices` in /dev/infiniband. Call it before threads exist.
/// Returns false if this system does not permit it; `why` names what was refused.
bool enter_private_view(std::span<const ViewEntry> files, std::span<const std::string> devices, std::string& why);

}  // namespace roci::cli
