#include "log.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::client {
namespace {

/// One write, so that lines of several threads do not mix.
void print(const char* format, va_list args) {
    const int saved = errno;
    char line[1024];
    const int n = std::vsnprintf(line, sizeof line, format, args);
    if (n >= 0) std::fprintf(stderr, "libibverbs (rocinante): %s\n", line);
    errno = saved;
}

}  // namespace

bool log_enabled() {
    static const bool enabled = [] {
        const char* value = std::getenv("ROCI_LOG");
        return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
    }();
    return enabled;
}

void log(const char* format, ...) {
    if (!log_enabled()) return;
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
