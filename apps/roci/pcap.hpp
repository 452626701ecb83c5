// `roci pcap`: captures frames of a running rocid as pcapng.
#pragma once

#include <cstdint>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

struct PcapOptions {
    Where where;
    std::string device;  ///< "": all devices
    uint32_t qpn = 0;    ///< 0: frames of all QPs
    std::string file;    ///< "-": standard output
    uint32_t snap_length = 0;
    double seconds = 0;  ///< 0: until a signal arrives
};

/// Captures until a signal arrives or the time limit has passed. Prints the number of captured and missed frames to stderr.
/// Returns the exit code.
int pcap(const PcapOptions& options);

}  // namespace roci::cli
