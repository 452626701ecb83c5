// Parses the key limits.users of the configuration.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "host/limits.hpp"

namespace roci::rocid {

/// Parses entries of the form "USER limit=number …". USER is a user name, a user ID, "@group" or "*". An entry for a group
/// applies to the members in the group database, and to users with this primary group. Throws std::invalid_argument with the
/// error text.
std::vector<host::LimitRule> parse_user_limits(const std::vector<std::string>& texts);

}  // namespace roci::rocid
