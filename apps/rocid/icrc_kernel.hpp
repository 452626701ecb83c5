// Messages about the ICRC kernel. The kernel is the function that computes ICRCs (wire/crc/kernel.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/crc/kernel.hpp"

namespace roci::rocid {

/// Returns the name of the selected kernel, for the log and `roci status`.
std::string_view icrc_kernel();

/// Returns warnings for the user, one per element. `wanted` is the value of the environment variable ROCI_CRC, or "" if the
/// variable is not set.
std::vector<std::string> icrc_warnings(const wire::crc::Choice& choice, std::string_view wanted);

/// Throws pmd::StartError if no kernel passes the self-test.
void check_icrc_kernel();

/// Logs the warnings. The daemon calls this function when it serves: a daemon that cannot start prints its error only.
void log_icrc_warnings();

}  // namespace roci::rocid
