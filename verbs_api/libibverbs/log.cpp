#include "log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::client {
namespace {

/// Prints the line by one call of fprintf(), so that the lines of several threads do not mix. Preserves errno.
void print(const char* format, va_list args) {
    const int saved = errno;
    char line[1024];
    const int n = std::vsnprintf(line, sizeof line, format, args);
    if (n >= 0) std::fprintf(stderr, "libibverbs (rocinante): %s\n", line);
    errno = saved;
}

enum class Level { none, first, all };

Level level() {
    static const Level value = [] {
        const char* text = std::getenv("ROCI_LOG");
        if (text == nullptr || *text == '\0') return Level::first;
        return std::strcmp(text, "0") == 0 ? Level::none : Level::all;
    }();
    return value;
}

/// Returns true at the first call per kind. The table has room for 24 kinds. For further kinds the function always returns false.
bool first_of(const char* kind) {
    static std::atomic<const char*> seen[24];
    for (std::atomic<const char*>& place : seen) {
        const char* there = nullptr;
        if (place.compare_exchange_strong(there, kind)) return true;
        if (there == kind) return false;
    }
    return false;
}

bool wanted(const char* kind) { return level() == Level::all || (level() == Level::first && first_of(kind)); }

}  // namespace

bool log_enabled() { return level() == Level::all; }

void log(const char* format, ...) {
    if (!wanted(format)) return;
    va_list args;
    va_start(args, format);
    print(format, args);
    va_end(args);
}

void log_kind(const char* kind, const char* format, ...) {
    if (!wanted(kind)) return;
    va_list args;
    va_start(args, format);
    print(format, args);
    va_end(args);
}

void warn(const char* format, ...) {
    va_list args;
    va_start(args, format);
    print(format, args);
    va_end(args);
}

}  // namespace roci::client
