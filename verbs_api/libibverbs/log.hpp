// Why a call failed, for people: one line on stderr, only when the environment variable ROCI_LOG is set (to anything but "0").
#pragma once

namespace roci::client {

bool log_enabled();
/// Adds the prefix and the newline. Preserves errno.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// The same, but always: for a broken installation, which a user would otherwise see as "no device".
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace roci::client
