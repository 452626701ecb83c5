// `roci run -- PROGRAM ARGS…`: an unmodified program over rocid.
#pragma once

#include <string>
#include <vector>

#include "daemon.hpp"

namespace roci::cli {

struct RunOptions {
    Where where;
    bool no_view = false;  ///< leave /sys and /dev alone
    std::vector<std::string> command;
};

/// Becomes the program (execve), so that its signals, exit code and process id are its own. Returns only on failure: 127 no such
/// program, 126 it cannot be executed, 125 roci itself failed.
int run(const RunOptions& options);

}  // namespace roci::cli
