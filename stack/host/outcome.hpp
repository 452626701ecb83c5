// The result of a handler: an errno, and one line of text with the reason for the program's author.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "neighbour/cache.hpp"

namespace roci::host {

struct [[nodiscard]] Outcome {
    int error = 0;                                 ///< 0 or a positive errno
    std::string reason;                            ///< cause and remedy
    std::optional<neighbour::Key> waits_for = {};  ///< if set, the request is run again after this neighbour's resolution
    /// If true, the request is run again until no worker uses the client's memory any more (memory_waits.hpp).
    bool waits_for_memory = false;
    uint64_t wanted_chunk = 0;  ///< length in bytes of a chunk that the client must add first (arena.hpp); 0: no chunk
    bool failed() const { return error != 0; }
};

inline Outcome done() { return {}; }

template <class... Args>
Outcome fail(int error, fmt::format_string<Args...> text, Args&&... args) {
    return {error, fmt::format(text, std::forward<Args>(args)...)};
}

inline Outcome wait_for_memory() {
    Outcome o = fail(EBUSY, "an access to the memory by address does not end");
    o.waits_for_memory = true;
    return o;
}

}  // namespace roci::host
