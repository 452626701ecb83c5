// A client may truncate a file that rocid has mapped, or punch a hole into it; the next access then raises SIGBUS. If the
// HoleFiller does not allocate the missing page, the guard's handler replaces the whole mapping by zero pages and marks the
// region as poisoned. In both cases the access continues. The copying code finds the mark and reports a protection fault. Any
// other SIGBUS ends rocid as usual.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "hole_filler.hpp"
#include "mem/memory_region.hpp"

namespace roci::rocid {

/// Mappings that may fault. add() and remove() take a lock; the handler only reads (it is async-signal-safe).
class SigbusGuard {
public:
    /// Returns the process-wide table. The first call installs the handler.
    static SigbusGuard& instance();

    /// Makes a fault in [region.base, +mapped_length) poison `region`, unless the filler allocates the page with the user's
    /// credit. Returns false if the table is full.
    bool add(mem::MappedRegion& region, uint64_t mapped_length, HoleFiller::Credit* credit = nullptr);
    /// Removes a mapping from the table. Must precede the unmapping. No thread may access the mapping any more. Returns the
    /// mapping's credit, or nullptr.
    HoleFiller::Credit* remove(const mem::MappedRegion& region);
    /// Returns the number of regions poisoned so far.
    uint64_t poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
    /// Returns an eventfd that becomes readable when a region was poisoned, or -1 if there is none.
    int event_fd() const { return event_fd_; }

    /// Sets the filler that the handler tries before it poisons a region, or nullptr.
    void set_filler(HoleFiller* filler) { filler_.store(filler, std::memory_order_release); }

    /// Called by the handler. Returns true if `address` belongs to a mapping of the table, and the access may
    /// continue: the page was filled or the mapping replaced.
    bool handle(uintptr_t address);

    /// Returns the number of mappings left in the reserve.
    size_t reserve() const { return reserve_left_.load(std::memory_order_relaxed); }

private:
    SigbusGuard();
    struct Entry {
        std::atomic<uint32_t> version{0};  ///< odd: being changed
        std::atomic<uintptr_t> base{0};
        std::atomic<uint64_t> length{0};
        std::atomic<mem::MappedRegion*> region{nullptr};
        std::atomic<HoleFiller::Credit*> credit{nullptr};
    };
    static constexpr size_t kPerBlock = 1024, kBlocks = 1024;
    struct Block {
        std::array<Entry, kPerBlock> entries;
    };
    /// Reserve of mappings. The handler removes one of them if the kernel allows no further mapping (vm.max_map_count).
    static constexpr size_t kReserve = 64;

    bool add_block();
    void make_reserve();
    bool give_up_one();
    bool cover(uintptr_t base, uint64_t length);
    void write(Entry& e, uintptr_t base, uint64_t length, mem::MappedRegion* region, HoleFiller::Credit* credit);

    std::mutex mutex_;
    std::array<std::atomic<Block*>, kBlocks> blocks_{};
    size_t used_blocks_ = 0;
    std::vector<Entry*> free_;                       ///< under mutex_
    std::unordered_map<uintptr_t, Entry*> by_base_;  ///< under mutex_
    std::atomic<uint64_t> poisoned_{0};
    std::atomic<HoleFiller*> filler_{nullptr};
    std::byte* reserve_ = nullptr;
    std::atomic<size_t> reserve_left_{0};
    int event_fd_ = -1;
};

}  // namespace roci::rocid
