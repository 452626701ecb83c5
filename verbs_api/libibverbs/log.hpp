// Messages on stderr about the cause of a failed call. ROCI_LOG=1 prints all messages and ROCI_LOG=0 none. Without the variable
// only the first message of each kind is printed.
#pragma once

namespace roci::client {

/// Returns true if ROCI_LOG is set to anything except "0": every message is printed.
bool log_enabled();
/// Prints a message with a prefix and a newline. Preserves errno. Messages with the same format string are of the same kind.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Like log(), with an explicit kind. `kind` is a string of static lifetime. Kinds are compared by address.
void log_kind(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// Like log(), but always prints. It reports a broken installation, which the program would otherwise report only as "no device".
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace roci::client
