// What a worker may still use after its owner let go of it (mem/slow_memory.hpp), and requests of clients that wait for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slab.hpp"
#include "base/types.hpp"
#include "mem/memory_region.hpp"

namespace roci::host {

/// A request to be run again: one a session, as a client waits for its reply.
struct MemoryWait {
    uint32_t session = 0;
    std::vector<std::byte> packet;
};

/// Workers say nothing to the conductor: it looks, at growing intervals.
class MemoryWaits {
public:
    using Region = Pool<mem::MemoryRegion>::Handle;

    /// Engines do not find the region any more. It goes when no worker and no window needs it, and then `process` too.
    void free_later(Region region, std::shared_ptr<mem::RemoteProcess> process);
    /// The owner of the region, or of a QP with buffers in it, waits.
    void hold(Nanos now, MemoryWait request);
    void forget(uint32_t session);

    Nanos next_deadline() const { return due_; }
    /// It is time: frees what nobody uses. The requests that wait are to be run again.
    std::vector<MemoryWait> look(Nanos now);
    size_t waiting_regions() const { return buried_.size(); }

private:
    static constexpr Nanos kFirst = 100'000, kLast = 100'000'000;
    struct Buried {
        std::shared_ptr<mem::RemoteProcess> process;
        Region region;
    };
    std::vector<MemoryWait> requests_;
    std::vector<uint32_t> looked_;  ///< sessions whose requests were run again last
    std::vector<Buried> buried_;
    Nanos due_ = kNever, pause_ = kFirst;
};

/// True: an access is under way.
inline bool in_use(const mem::MemoryRegion& region) {
    if (region.slow_pending.load(std::memory_order_acquire) != 0) return true;
    return region.is_window && region.users.load(std::memory_order_acquire) != 0;
}

}  // namespace roci::host
