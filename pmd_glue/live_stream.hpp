// A stream into a pipe whose reader may be slow or may have ended.
#pragma once

#include <atomic>
#include <memory>

#include "tap_sinks.hpp"

namespace roci::pmd {

/// Returns a stream that writes to `fd`, a non-blocking pipe. Closing the stream closes `fd`. While `ending` is not set, a write
/// waits for the reader as long as there is one. After `ending` has been set, all writes together wait for 2 s at most. If the
/// reader is gone, the write fails. Returns nullptr if memory is exhausted.
File open_live_stream(int fd, std::shared_ptr<const std::atomic<bool>> ending);

}  // namespace roci::pmd
