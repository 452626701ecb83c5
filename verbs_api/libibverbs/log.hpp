// Why a call failed, for people: lines on stderr. ROCI_LOG=1 prints every one, ROCI_LOG=0 none; without the variable the first of
// each kind is printed.
#pragma once

namespace roci::client {

/// ROCI_LOG is set, to anything but "0": every line is printed.
bool log_enabled();
/// Adds the prefix and the newline. Preserves errno. A format is a kind.
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// The same, with a kind of its own; `kind` is a string of static lifetime and is compared by its address.
void log_kind(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// The same, but always: for a broken installation, which a user would otherwise see as "no device".
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace roci::client
