// Parses the key limits.users of the configuration.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "host/limits.hpp"

namespace roci::rocid {

/// Parses entries "USER limit=number …", where USER is a name, a number, "@group" or "*". The members of a group are the users
/// that the group database lists, and the users with this primary group. Throws std::invalid_argument with the error text.
std::vector<host::LimitRule> parse_user_limits(const std::vector<std::string>& texts);

}  // namespace roci::rocid
