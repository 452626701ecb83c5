// The session's shared memory in this process: the chunks that rocid has passed by descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "abi/rings.hpp"

namespace roci::client {

/// One shared mapping.
struct Mapping {
    std::byte* base = nullptr;
    size_t length = 0;
};

/// Maps the whole file of `fd` and closes `fd`. On failure base == nullptr and errno is set.
Mapping map_fd(int fd, bool writable);
void unmap(Mapping& mapping);
/// Called in a fork's child. Replaces the mapping by private memory, so that the child cannot change the parent's queues.
void replace_by_private(const Mapping& mapping);

class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();
    /// Maps a chunk and closes its descriptor. Returns 0 or an errno.
    int add_chunk(uint32_t id, int fd);
    /// Returns the memory of a location, or nullptr if the location is not within a known chunk or is shorter than `needed`
    /// bytes.
    std::byte* locate(const abi::Location& where, uint64_t needed) const;
    void leave_to_parent();

private:
    mutable std::mutex mutex_;
    std::vector<Mapping> chunks_;
};

}  // namespace roci::client
