// A client may truncate a file that rocid has mapped; the next access then raises SIGBUS. The guard turns that into a poisoned
// region: the handler puts zero pages over the whole mapping and marks it, the access goes on harmlessly, and whoever copied
// finds the mark and reports a protection fault. Any other SIGBUS ends rocid as ever.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "mem/memory_region.hpp"

namespace roci::rocid {

/// Mappings that may fault. add() and remove() take a lock; the handler only reads (it is async-signal-safe).
class SigbusGuard {
public:
    /// The process-wide table. The first call installs the handler.
    static SigbusGuard& instance();

    /// From now on a fault in [region.base, +mapped_length) poisons `region`. False: the table is full.
    bool add(mem::MappedRegion& region, uint64_t mapped_length);
    /// Before the mapping goes. Nobody may be accessing it any more.
    void remove(const mem::MappedRegion& region);
    /// Regions poisoned so far.
    uint64_t poisoned() const { return poisoned_.load(std::memory_order_relaxed); }

    /// The handler's work. True: the address was one of ours.
    bool handle(uintptr_t address);

private:
    SigbusGuard();
    struct Entry {
        std::atomic<uint32_t> version{0};  ///< odd: being changed
        std::atomic<uintptr_t> base{0};
        std::atomic<uint64_t> length{0};
        std::atomic<mem::MappedRegion*> region{nullptr};
    };
    struct Block {
        std::array<Entry, 1024> entries;
    };
    static constexpr size_t kBlocks = 1024;

    Entry* find_entry(uintptr_t base);
    Entry* free_entry();
    void write(Entry& e, uintptr_t base, uint64_t length, mem::MappedRegion* region);

    std::mutex mutex_;
    std::array<std::atomic<Block*>, kBlocks> blocks_{};
    std::atomic<uint64_t> poisoned_{0};
};

}  // namespace roci::rocid
