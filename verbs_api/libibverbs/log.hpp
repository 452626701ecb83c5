// Messages on stderr about the cause of a failed call. With ROCI_LOG=1 the library prints all messages, with ROCI_LOG=0 only
// those of warn(). If the variable is unset or empty, the library prints the messages of warn() and the first message of each
// kind.
#pragma once

namespace roci::client {

/// Returns true if all messages are printed: ROCI_LOG is set, not empty and not "0".
bool log_enabled();
/// Prints a message with a prefix and a newline. Preserves errno. Messages with the same format string are of the same kind.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Like log(), with an explicit kind. `kind` is a string of static lifetime. Two messages are of the same kind if `kind` is the
/// same pointer.
void log_kind(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// Like log(), but always prints the message. Callers use this function for faults of the installation and for the end of rocid.
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace roci::client
