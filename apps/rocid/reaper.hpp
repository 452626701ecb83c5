// Releases descriptors and mappings of clients on threads that may block. close() can block as long as the owner of the file
// likes, for example if the file is a TCP socket with SO_LINGER or belongs to a FUSE server. The last munmap() of shared memory
// frees the memory, which takes time in proportion to its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace roci::rocid {

/// One thread at a time releases the items of a user, so a user whose items block delays no other user, unless 64 users block at
/// the same time. All functions are thread-safe. close() and unmap() return at once.
class Reaper {
public:
    /// Limit of a user's descriptors that wait to be closed. At the limit the user's sessions may send no further descriptors
    /// (ControlSocket).
    static constexpr size_t kMostClosing = 1024;

    Reaper();
    /// Waits up to a second until nothing is pending. Threads that are still blocked after this time end with the process.
    ~Reaper();
    Reaper(const Reaper&) = delete;

    void close(uint32_t user, int fd);
    /// Unmaps a range. The caller ensures that no thread accesses the mapping any more. The addresses are not reused before they
    /// are unmapped.
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
