// A worker is a thread that accesses memory of clients by address (mem/slow_memory.hpp). MemoryWaits stores regions that a client
// has released but that a worker still uses. It also stores client requests that cannot complete before a worker has ended its
// access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slab.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// A request to be run again. A session has at most one such request, because a client waits for the reply before it sends the
/// next request.
struct MemoryWait {
    uint32_t session = 0;
    std::vector<std::byte> packet;
};

/// Polls for the end of accesses, because workers do not notify the conductor (rocid's control thread). The polling interval
/// doubles from kFirst to kLast.
class MemoryWaits {
public:
    using Region = Pool<mem::MemoryRegion>::Handle;

    /// Takes over a region that engines cannot look up any more. Frees the region, and then releases `process`, when in_use() of
    /// the region returns false.
    void free_later(Region region, std::shared_ptr<mem::RemoteProcess> process);
    /// Stores a request that failed with Outcome::waits_for_memory. The first look() after next_deadline() returns it.
    void hold(Nanos now, MemoryWait request);
    void forget(uint32_t session);

    Nanos next_deadline() const { return due_; }
    /// If next_deadline() has passed, frees the regions that are no longer used and returns all stored requests. The caller must
    /// run the returned requests again.
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

/// Returns true if an access to slow memory of the region is in progress (mem/slow_memory.hpp). For a memory window, also returns
/// true if any access through the window is in progress.
inline bool in_use(const mem::MemoryRegion& region) {
    if (region.slow_pending.load(std::memory_order_acquire) != 0) return true;
    return region.is_window && region.users.load(std::memory_order_acquire) != 0;
}

}  // namespace roci::host
