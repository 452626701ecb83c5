// The text of errno, for messages.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace roci::rocid {

inline std::string errno_text() { return std::strerror(errno); }

}  // namespace roci::rocid
