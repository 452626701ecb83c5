// Messages on stderr about the cause of a failed call. ROCI_LOG=1 prints all of them, ROCI_LOG=0 none; without the variable the
// first one of each kind is printed.
#pragma once

namespace roci::client {

/// ROCI_LOG is set, to anything but "0": every line is printed.
bool log_enabled();
/// Prints a message with a prefix and a newline. Preserves errno. Each format is a kind.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// The same with an explicit kind. `kind` is a string of static lifetime and is compared by its address.
void log_kind(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// The same, but always printed: for a broken installation, which would otherwise only appear as "no device".
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace roci::client
