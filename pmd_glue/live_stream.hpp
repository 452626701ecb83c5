// A stdio stream that writes to a pipe whose reader may be slow or may have ended.
#pragma once

#include <atomic>
#include <memory>

#include "tap_sinks.hpp"

namespace roci::pmd {

/// Returns a stream that writes to the non-blocking pipe `fd`. Closing the stream closes `fd`. If the pipe is full, a write waits
/// until the reader reads. After `ending` was set, all writes together wait for 2 s at most. A write fails if the reader has
/// closed the pipe. Returns nullptr if memory is exhausted.
File open_live_stream(int fd, std::shared_ptr<const std::atomic<bool>> ending);

}  // namespace roci::pmd
