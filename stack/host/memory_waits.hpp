// A worker is a thread that accesses memory of clients by address (mem/slow_memory.hpp). MemoryWaits keeps regions that a client
// has released while a worker uses them, and client requests that wait until no worker uses the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slab.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// A request to be run again. A session has at most one, because a client waits for the reply before its next request.
struct MemoryWait {
    uint32_t session = 0;
    std::vector<std::byte> packet;
};

/// Polls for the end of accesses, at growing intervals, because workers do not notify the conductor.
class MemoryWaits {
public:
    using Region = Pool<mem::MemoryRegion>::Handle;

    /// Takes over a region that engines cannot look up any more. When in_use() returns false, frees the region and then releases
    /// `process`.
    void free_later(Region region, std::shared_ptr<mem::RemoteProcess> process);
    /// Stores a request that failed with Outcome::waits_for_memory until look() returns it.
    void hold(Nanos now, MemoryWait request);
    void forget(uint32_t session);

    Nanos next_deadline() const { return due_; }
    /// Frees regions that are no longer used and returns all stored requests. The caller runs them again. Called when
    /// next_deadline() has passed.
    std::vector<MemoryWait> look(Nanos now);

private:
    static constexpr Nanos kFirst = 100'000, kLast = 100'000'000;
    struct Buried {
        std::shared_ptr<mem::RemoteProcess> process;
        Region region;
    };
    std::vector<MemoryWait> requests_;
    std::vector<uint32_t> looked_;  ///< sessions whose requests the last look() returned
    std::vector<Buried> buried_;
    Nanos due_ = kNever, pause_ = kFirst;
};

/// Returns true if an access to the region by address is in progress or, for a window, any access through the window.
inline bool in_use(const mem::MemoryRegion& region) {
    if (region.slow_pending.load(std::memory_order_acquire) != 0) return true;
    return region.is_window && region.users.load(std::memory_order_acquire) != 0;
}

}  // namespace roci::host
