// limits.users of the configuration: what a user or the members of a group may have.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "host/limits.hpp"

namespace roci::rocid {

/// "USER limit=number …" each; USER is a name, a number, "@group" or "*". Members of a group are those that the group database
/// names, and those whose primary group it is. Throws std::invalid_argument, which names what is wrong.
std::vector<host::LimitRule> parse_user_limits(const std::vector<std::string>& texts);

}  // namespace roci::rocid
