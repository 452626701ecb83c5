// `roci run -- PROGRAM ARGS…`: runs an unmodified program over rocid.
#pragma once

#include <string>
#include <vector>

#include "daemon.hpp"

namespace roci::cli {

struct RunOptions {
    Where where;
    bool no_view = false;  ///< true: do not create a private view of /sys and /dev
    std::vector<std::string> command;
};

/// Replaces roci by the program (execvp), so that the program itself gets signals and sets the exit code. Returns only on
/// failure: 127 if there is no such program, 126 if the program cannot be executed, 125 if roci itself failed.
int run(const RunOptions& options);

}  // namespace roci::cli
