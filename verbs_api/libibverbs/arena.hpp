// The session's shared memory for queues and device memory (the arena). This process creates the chunks of the arena and passes
// them to rocid, so that the kernel charges the chunks to the control group of this process.
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

/// Maps the whole file of `fd` and closes `fd`. On failure `base` is nullptr and errno is set.
Mapping map_fd(int fd, bool writable);
void unmap(Mapping& mapping);
/// Allocates the pages of a part of a shared memory file, so that the kernel charges them to this process. Returns 0 or an errno.
int allocate_pages(int fd, uint64_t offset, uint64_t length);
/// Replaces the mapping by private memory. A fork's child calls this function, so that the child cannot change the parent's
/// queues.
void replace_by_private(const Mapping& mapping);

class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();
    void use_huge_pages(bool huge) { huge_ = huge; }
    /// Adds the mapping to the arena as chunk `id`. Returns 0 or an errno.
    int add_chunk(uint32_t id, const Mapping& chunk);
    /// Creates a memfd of `length` bytes, allocates all its pages and maps it. Sets `fd` to the descriptor, which the caller
    /// closes. On failure `base` is nullptr and errno is set.
    Mapping make_chunk(size_t length, int& fd) const;
    /// Returns the memory of a location, or nullptr if the location is not within a known chunk or is shorter than `needed`
    /// bytes.
    std::byte* locate(const abi::Location& where, uint64_t needed) const;
    void leave_to_parent();

private:
    mutable std::mutex mutex_;
    bool huge_ = false;
    std::vector<Mapping> chunks_;
};

}  // namespace roci::client
