// `roci plot`: creates an HTML page with graphs of the packets of connections. The input is a capture file or a live capture of a
// queue pair.
#pragma once

#include <cstdint>
#include <string>

#include "daemon.hpp"

namespace roci::cli {

struct PlotOptions {
    Where where;
    std::string file;      ///< path of the capture; "-": standard input
    std::string output;    ///< "-": standard output; "": derived from the capture's name
    uint32_t qpn = 0;      ///< queue pair to capture; 0: none
    double seconds = 5;    ///< duration of the live capture
    uint32_t flow = 0;     ///< number of the connection to show; 0: all connections
    bool as_json = false;  ///< write the data instead of the page
};

/// Writes the page or the data, and prints a summary. Returns the exit status (plot::Ending).
int plot(const PlotOptions& options);

/// The text of the manual page about the exit status of `roci plot`.
inline constexpr const char* kPlotExitStatus =
    "roci plot: 0: the page is made, also of a capture that is cut; 1: the capture cannot be read, or the page not be written; "
    "2: the "
    "capture has no RoCEv2 packets; 3: there is no such queue pair, or it is another user's; 4: the queue pair was silent.";

}  // namespace roci::cli
