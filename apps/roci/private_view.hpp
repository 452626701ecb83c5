// Creates a private view of /sys and /dev for a program. The view contains the paths by which programs recognise an RDMA device.
// The paths are in a new mount namespace, so other programs do not see them. The kernel removes the namespace when the program
// ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sysfs_view.hpp"

namespace roci::cli {

/// Moves the calling process into a new mount namespace. If the process may not create a mount namespace, also moves the process
/// into a new user namespace, in which it keeps its uid. Adds `files` to /sys/class/infiniband. Adds a link to /dev/null per name
/// in `devices` to /dev/infiniband. The process must have only one thread. Returns false if the system refuses a step; `why` then
/// names the step. A child process tries all mounts first, so after a refusal the calling process is still in its old namespaces.
bool enter_private_view(std::span<const ViewEntry> files, std::span<const std::string> devices, std::string& why);

}  // namespace roci::cli
