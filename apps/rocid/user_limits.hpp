// Parses limits.users of the configuration: limits of a user or of the members of a group.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "host/limits.hpp"

namespace roci::rocid {

/// Parses entries "USER limit=number …", where USER is a name, a number, "@group" or "*". The members of a group are those in the
/// group database, and users with that primary group. Throws std::invalid_argument with the error text.
std::vector<host::LimitRule> parse_user_limits(const std::vector<std::string>& texts);

}  // namespace roci::rocid
