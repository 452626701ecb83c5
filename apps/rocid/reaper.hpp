// Releases descriptors and mappings of clients on separate threads, because the release can block. close(2) can block without
// limit, for example if the file is a TCP socket with SO_LINGER or belongs to a FUSE server. The last munmap(2) of shared memory
// frees the memory, which takes time in proportion to the size of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace roci::rocid {

/// At most one thread at a time releases items of a user. So a user whose items block delays no other user, unless items of 64
/// users block at the same time. All functions are thread-safe. close() and unmap() only queue an item and return at once.
class Reaper {
public:
    /// Limit of a user's descriptors that are not closed yet. At the limit, ControlSocket refuses further descriptors and
    /// connections of the user.
    static constexpr size_t kMostClosing = 1024;

    Reaper();
    /// Waits up to one second until nothing is pending. Threads that are blocked longer end with the process.
    ~Reaper();
    Reaper(const Reaper&) = delete;

    void close(uint32_t user, int fd);
    /// Unmaps a range later. The caller ensures that no thread accesses the mapping any more. The kernel does not reuse the
    /// addresses before the range is unmapped.
    void unmap(uint32_t user, void* base, uint64_t length);

    /// Returns the number of the user's descriptors that are not closed yet.
    size_t closing(uint32_t user) const;
    /// Returns the number of descriptors and mappings of all users that are not released yet.
    size_t pending() const;
    /// Waits until nothing is pending, for at most `limit_ms`. Returns true if nothing is pending.
    bool drain(int limit_ms) const;

private:
    struct State;
    void add(uint32_t user, int fd, void* base, uint64_t length);
    std::shared_ptr<State> state_;
};

}  // namespace roci::rocid
