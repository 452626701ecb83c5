// The /sys/class/infiniband that programs expect of an RDMA device, as a list of files. enter_private_view() creates the files.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "devices.hpp"

namespace roci::cli {

/// A file with one line of text, a symbolic link (`link` set) or an empty folder (`path` ends in a slash), below
/// /sys/class/infiniband.
struct ViewEntry {
    std::string path;
    std::string text;
    std::string link;
};

/// Facts about this machine that a device reports.
struct HostFacts {
    std::string local_cpus;      ///< CPU mask as the kernel writes it, such as "3"
    std::string local_cpu_list;  ///< such as "0-1"
    std::string node_name;
    /// Returns the interface to show for a GID without an interface. Returns "" to show none.
    std::function<std::string(const abi::GidValue&)> interface_towards;
};
HostFacts host_facts();

/// Interval in ms at which the files of counters are renewed (live_counters.hpp).
inline constexpr int kCounterPeriodMs = 1000;

/// Returns the files of all devices. Counters are 0 here; live_counters.hpp writes their values.
std::vector<ViewEntry> sysfs_view(std::span<const Device> devices, const HostFacts& host);

}  // namespace roci::cli
