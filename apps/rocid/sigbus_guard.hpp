// A client can truncate a file that rocid has mapped, or remove pages of the file. An access to a missing page then raises
// SIGBUS. The handler of SIGBUS first calls the HoleFiller. If the HoleFiller does not allocate the missing page, the handler
// replaces the whole mapping by zero pages and marks the region as poisoned. In both cases the access continues. The code that
// copies payload checks the mark and reports a protection fault. Any other SIGBUS ends rocid.
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

/// The table of mappings of client memory. add() and remove() take a lock. handle() takes no lock and is async-signal-safe.
class SigbusGuard {
public:
    /// Returns the process-wide table. The first call installs the handler.
    static SigbusGuard& instance();

    /// Adds the mapping [region.base, region.base + mapped_length) to the table. Returns false if the table is full. `credit` is
    /// the user's credit for the HoleFiller.
    bool add(mem::MappedRegion& region, uint64_t mapped_length, HoleFiller::Credit* credit = nullptr);
    /// Removes a mapping from the table. Must be called before the unmapping. No thread may access the mapping any more. Returns
    /// the credit that was passed to add(), or nullptr.
    HoleFiller::Credit* remove(const mem::MappedRegion& region);
    /// Returns the number of regions that were poisoned since the start.
    uint64_t poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
    /// Returns an eventfd that becomes readable when a region is poisoned, or -1 if the eventfd could not be created.
    int event_fd() const { return event_fd_; }

    /// Sets the filler that the handler tries before it poisons a region, or nullptr.
    void set_filler(HoleFiller* filler) { filler_.store(filler, std::memory_order_release); }

    /// Handles a fault at `address`. Called by the handler of SIGBUS. Returns true if the page was allocated or the mapping was
    /// replaced, so that the access can continue. Returns false if `address` belongs to no mapping of the table.
    bool handle(uintptr_t address);

    /// Returns the number of mappings left in the reserve.
    size_t reserve() const { return reserve_left_.load(std::memory_order_relaxed); }

private:
    SigbusGuard();
    struct Entry {
        std::atomic<uint32_t> version{0};  ///< odd while a thread changes the entry
        std::atomic<uintptr_t> base{0};
        std::atomic<uint64_t> length{0};
        std::atomic<mem::MappedRegion*> region{nullptr};
        std::atomic<HoleFiller::Credit*> credit{nullptr};
    };
    static constexpr size_t kPerBlock = 1024, kBlocks = 1024;
    struct Block {
        std::array<Entry, kPerBlock> entries;
    };
    /// Number of mappings in the reserve. If the kernel allows no further mapping (vm.max_map_count), the handler removes a
    /// mapping of the reserve.
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
