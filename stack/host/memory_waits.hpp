// Memory that a worker may still use although its owner has released it (mem/slow_memory.hpp), and client requests that wait
// until the worker has finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slab.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// A request to be run again. There is at most one per session, because a client waits for its reply.
struct MemoryWait {
    uint32_t session = 0;
    std::vector<std::byte> packet;
};

/// Polls for the end of accesses, at growing intervals, because workers do not notify the conductor.
class MemoryWaits {
public:
    using Region = Pool<mem::MemoryRegion>::Handle;

    /// Takes over a region that engines do not find any more. Frees the region when no worker and no window needs it, and then
    /// `process`.
    void free_later(Region region, std::shared_ptr<mem::RemoteProcess> process);
    /// Stores a request that releases a region, or a QP with buffers in it, until the memory is no longer used.
    void hold(Nanos now, MemoryWait request);
    void forget(uint32_t session);

    Nanos next_deadline() const { return due_; }
    /// Called when next_deadline() has passed. Frees regions that are no longer used. Returns the waiting requests, which the
    /// caller runs again.
    std::vector<MemoryWait> look(Nanos now);
    size_t waiting_regions() const { return buried_.size(); }

private:
    static constexpr Nanos kFirst = 100'000, kLast = 100'000'000;
    struct Buried {
        std::shared_ptr<mem::RemoteProcess> process;
        Region region;
    };
    std::vector<MemoryWait> requests_;
    std::vector<uint32_t> looked_;  ///< sessions whose requests look() returned last
    std::vector<Buried> buried_;
    Nanos due_ = kNever, pause_ = kFirst;
};

/// Returns true if an access to the region is in progress.
inline bool in_use(const mem::MemoryRegion& region) {
    if (region.slow_pending.load(std::memory_order_acquire) != 0) return true;
    return region.is_window && region.users.load(std::memory_order_acquire) != 0;
}

}  // namespace roci::host
