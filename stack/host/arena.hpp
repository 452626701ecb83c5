// The arena of a session is the shared memory of the session's queues and device memory. The client allocates this memory, so
// that the client's control group is charged for it. The arena grows by chunks and does not shrink while the session exists.
// Freed blocks are merged with adjacent free blocks, so that repeated creation and destruction of queues does not grow the arena.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "host/conductor.hpp"
#include "host/outcome.hpp"

namespace roci::host {

class Arena;

/// The owner of one block of an arena. The destructor frees the block.
class ArenaBlock {
public:
    ArenaBlock() = default;
    ArenaBlock(ArenaBlock&& other) noexcept { *this = std::move(other); }
    ArenaBlock& operator=(ArenaBlock&& other) noexcept;
    ~ArenaBlock() { reset(); }
    void reset();
    std::byte* base() const { return base_; }
    const abi::Location& where() const { return where_; }
    explicit operator bool() const { return base_ != nullptr; }

private:
    friend class Arena;
    Arena* arena_ = nullptr;
    std::byte* base_ = nullptr;
    abi::Location where_{};
};

class Arena {
public:
    static constexpr uint64_t kFirstChunk = 256 * 1024;
    /// Each new chunk is twice as long as the last one, but not longer than kLargestStep. A chunk for a longer block is as long
    /// as the block.
    static constexpr uint64_t kLargestStep = uint64_t{64} << 20;

    Arena(Platform& platform, uint64_t max_bytes) : platform_(platform), max_bytes_(max_bytes) {}
    ~Arena();
    Arena(const Arena&) = delete;

    /// Allocates a zeroed block of at least `length` bytes, aligned to a cache line. Fails with ENOMEM if the block would exceed
    /// the session's limit. Also fails with ENOMEM if the client must first add a chunk of Outcome::wanted_chunk bytes.
    Outcome allocate(uint64_t length, ArenaBlock& out);
    /// Adds a mapped chunk to the arena and becomes its owner. Returns the index of the chunk.
    uint32_t add_chunk(const SharedMemory&);
    /// Checks the length of a chunk. ENOMEM: the chunk would exceed the session's limit. EINVAL: the length is not whole pages.
    Outcome check_chunk(uint64_t length) const;

    uint64_t bytes() const { return bytes_; }
    /// Returns true if the client has removed pages of the arena.
    bool is_lost() const {
        return std::any_of(chunks_.begin(), chunks_.end(), [&](const SharedMemory& m) { return platform_.is_lost(m); });
    }
    size_t chunks() const { return chunks_.size(); }

private:
    friend class ArenaBlock;
    using Stretch = std::pair<uint32_t, uint64_t>;  // index of the chunk, offset

    Outcome want_chunk(uint64_t least) const;
    void insert_free(uint32_t chunk, uint64_t offset, uint64_t length);
    void erase_free(uint32_t chunk, uint64_t offset, uint64_t length);
    void release(uint32_t chunk, uint64_t offset, uint64_t length);

    Platform& platform_;
    uint64_t max_bytes_;
    uint64_t bytes_ = 0;
    std::vector<SharedMemory> chunks_;
    std::map<Stretch, uint64_t> free_by_place_;            // maps each free block to its length
    std::set<std::pair<uint64_t, Stretch>> free_by_size_;  // free blocks sorted by length, for best fit
};

}  // namespace roci::host
