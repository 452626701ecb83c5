// The memory of this process that rocid has mapped. Memory regions with the same RegionKey share one mapping of the file in
// rocid.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "abi/control.hpp"
#include "memory/adopt.hpp"

namespace roci::client {

struct Context;

/// `id` identifies a file (memory::Piece::id). `length` is the size of the file when this process passed it to rocid. `writable`
/// is true if rocid may write to the file.
struct RegionKey {
    uint64_t id;
    uint64_t length;
    bool writable;
    auto operator<=>(const RegionKey&) const = default;
};

/// Describes how rocid accesses the memory of one MR. RegionTable::acquire fills in the struct, and RegionTable::release clears
/// it.
struct RegisteredMemory {
    bool acquired = false;
    uint64_t token = 0;
    std::vector<RegionKey> regions;  ///< one entry per piece in a file; a file may occur several times
    std::vector<abi::MrSegment> segments;
};

class RegionTable {
public:
    /// Makes [addr, addr+length) accessible to rocid. Returns 0 or an errno. After an error `out` is empty.
    int acquire(Context& context, void* addr, size_t length, bool need_write, RegisteredMemory& out);
    void release(Context& context, RegisteredMemory& memory);
    /// If `wanted` is true, acquire() allocates the pages of the memory, so that the kernel charges the pages to this process and
    /// not to rocid.
    void populate(bool wanted) { populates_ = wanted; }

private:
    struct Region {
        uint32_t handle;
        uint32_t users;
    };
    int share(Context& context, const memory::Piece& piece, RegisteredMemory& out, abi::MrSegment& segment);
    int use(Context& context, const memory::Piece& piece, RegionKey& key, uint32_t& handle);
    void drop(Context& context, const RegionKey& key);

    bool populates_ = false;
    std::mutex mutex_;
    std::map<RegionKey, Region> regions_;
};

}  // namespace roci::client
