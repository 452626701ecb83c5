// Checks whether this machine or container has what rocid needs. The checks run before DPDK starts. Without these checks, DPDK
// would end the process or print pages of its own help.
#pragma once

#include <cstdint>
#include <string>

namespace roci::rocid {

/// The properties of a machine that rocid needs. Tests replace the functions.
struct MachineNeeds {
    std::string sys = "/sys";
    int (*make_memfd)() = nullptr;  ///< returns a descriptor, or -1 and sets errno
    unsigned threads = 0;           ///< number of threads that rocid will start
};

/// Throws StartError if something is missing. The text is one line and names a remedy.
void check_machine(const MachineNeeds& needs);

/// Returns the needs of a rocid with this number of engines on this machine.
MachineNeeds needs_of(unsigned engines);

}  // namespace roci::rocid
