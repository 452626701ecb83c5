// A stream into a pipe whose reader may be slow or may have ended. It never blocks its writer forever.
#pragma once

#include <atomic>
#include <memory>

#include "tap_sinks.hpp"

namespace roci::pmd {

/// Writes to `fd` (a non-blocking pipe; closed with the stream). While `ending` is unset it waits for the reader as long as there
/// is one; once it is set, for `kLastWait` at most. A reader that is gone is an error of the stream. nullptr: out of memory.
File open_live_stream(int fd, std::shared_ptr<const std::atomic<bool>> ending);

}  // namespace roci::pmd
