// Returns the files that programs expect in /sys/class/infiniband for an RDMA device. enter_private_view() and
// ViewFolder create the files.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "devices.hpp"

namespace roci::cli {

/// An entry below /sys/class/infiniband. If `link` is set, the entry is a symbolic link. If `path` ends in a slash, the entry is
/// an empty folder. Otherwise the entry is a file with one line of text.
struct ViewEntry {
    std::string path;
    std::string text;
    std::string link;
    bool counter = false;  ///< true: live_counters.hpp writes the file again and again
};

/// Creates the entry below `root`, and the folders above it. Throws std::system_error on failure.
void add_entry(const std::filesystem::path& root, const ViewEntry& entry);

/// The properties of this machine that appear in the files of each device.
struct HostFacts {
    std::string local_cpus;      ///< CPU mask as the kernel writes it, such as "3"
    std::string local_cpu_list;  ///< such as "0-1"
    std::string node_name;
    /// Returns the interface to show for a GID that has no interface, or "" to show no interface.
    std::function<std::string(const abi::GidValue&)> interface_towards;
};
HostFacts host_facts();

/// The interval in ms at which live_counters.hpp writes the counter files.
inline constexpr int kCounterPeriodMs = 1000;

/// Returns the files of all devices. The files of counters contain 0; live_counters.hpp later writes their values.
std::vector<ViewEntry> sysfs_view(std::span<const Device> devices, const HostFacts& host);

}  // namespace roci::cli
