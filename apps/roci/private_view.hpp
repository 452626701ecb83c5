// A private view of /sys and /dev for a program: the paths by which programs recognise an RDMA device. The paths are in a new
// mount namespace. Other programs do not see them, and they disappear with the program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sysfs_view.hpp"

namespace roci::cli {

/// Moves the calling process into a new mount namespace. If the process lacks the right to do so, also moves it into a user
/// namespace, in which it keeps its uid. Adds `files` as /sys/class/infiniband, and a placeholder for each of `devices` in
/// /dev/infiniband. Must be called before the process has threads. Returns false if the system refuses a step; `why` then names
/// the step.
bool enter_private_view(std::span<const ViewEntry> files, std::span<const std::string> devices, std::string& why);

}  // namespace roci::cli
