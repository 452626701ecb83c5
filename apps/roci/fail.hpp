// The error message of a command.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace roci::cli {

/// Prints the error and returns the exit code of a command that fails.
inline int fail(const std::string& why) {
    fmt::print(stderr, "roci: {}\n", why);
    return 1;
}

}  // namespace roci::cli
