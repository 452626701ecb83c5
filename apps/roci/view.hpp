// `roci view DIR`: writes the files by which programs recognise RDMA devices into a folder. The folder is mounted read-only into
// containers that may not mount anything themselves.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "daemon.hpp"
#include "sysfs_view.hpp"

namespace roci::cli {

struct ViewOptions {
    Where where;
    std::string folder;
    std::string cdi;            ///< file for a CDI specification, or ""
    bool watch = false;         ///< true: renew the view until SIGINT or SIGTERM
    bool host_network = false;  ///< true: the programs use the network namespace of this process
};

/// The parts of a view, below its folder, and the places where containers mount them.
struct ViewMount {
    const char* from;
    const char* to;
};
std::span<const ViewMount> view_mounts();

/// A folder with a view. Its subfolders sys/class and dev/infiniband replace the folders /sys/class and /dev/infiniband of a
/// program. Its subfolder lib contains the client libraries.
class ViewFolder {
public:
    /// Creates the folder and locks it. Throws std::runtime_error if the folder contains files that are not part of a view, if
    /// another user can change the folder, or if another ViewFolder has locked the folder.
    explicit ViewFolder(std::filesystem::path folder);
    /// Copies the links in the folders of `sys`/class except infiniband, so that a program still finds devices of other classes.
    /// `sys` is "/sys" except in tests. If `host_network` is false, the class `net` is a link to devices/virtual/net. This folder
    /// contains the virtual interfaces of the program's own network namespace.
    void copy_classes(const std::filesystem::path& sys, bool host_network) const;
    /// Writes the files of the devices in `devices`, and removes the files of all other devices. If `keep_counters` is true, does
    /// not change existing files of counters.
    void write_devices(std::span<const ViewEntry> files, std::span<const std::string> devices, bool keep_counters) const;
    /// Copies the client libraries from `folders` into the folder lib of the view.
    void copy_libraries(std::span<const std::string> folders) const;
    std::filesystem::path devices() const { return folder_ / "sys/class/infiniband"; }

private:
    std::filesystem::path folder_;
    UniqueFd lock_;
};

/// Returns a CDI specification (Container Device Interface 0.5.0) of the view. A container engine applies the specification to a
/// container that the user starts with `--device rocinante/verbs=all`.
std::string cdi_specification(const std::filesystem::path& folder, const std::string& socket);

int view(const ViewOptions& options);

}  // namespace roci::cli
