// The session's shared memory as this process sees it: the chunks that rocid handed over.
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

/// Maps `fd` whole and closes it. base == nullptr with errno set on failure.
Mapping map_fd(int fd, bool writable);
void unmap(Mapping& mapping);
/// In a fork's child: puts private memory in place of the mapping, so that nothing done here reaches the parent's queues.
void replace_by_private(const Mapping& mapping);

class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();
    /// Takes the descriptor. 0 or errno.
    int add_chunk(uint32_t id, int fd);
    /// The memory of a location, or nullptr when it is not within a chunk that we have, or shorter than `needed` bytes.
    std::byte* locate(const abi::Location& where, uint64_t needed) const;
    void leave_to_parent();

private:
    mutable std::mutex mutex_;
    std::vector<Mapping> chunks_;
};

}  // namespace roci::client
