// Releases descriptors and mappings of clients on threads that may block. close() can block as long as the owner of the file
// likes: a TCP socket with SO_LINGER, a file of a FUSE server. The last munmap() of shared memory frees it, which takes time in
// proportion to its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace roci::rocid {

/// One thread at a time releases the items of a user, so a user whose items block delays only itself. All calls are thread-safe
/// and return at once.
class Reaper {
public:
    /// Limit of a user's descriptors that wait to be closed. At the limit the user's sessions may send no further descriptors
    /// (ControlSocket).
    static constexpr size_t kMostClosing = 1024;

    Reaper();
    /// Does not wait for blocked threads; the kernel ends them with the process.
    ~Reaper();
    Reaper(const Reaper&) = delete;

    void close(uint32_t user, int fd);
    /// The caller ensures that no thread accesses the mapping any more. The address range is not reused before it is unmapped.
    void unmap(uint32_t user, void* base, uint64_t length);

    /// Number of the user's descriptors that are not closed yet.
    size_t closing(uint32_t user) const;
    /// Number of descriptors and mappings of all users that are not released yet.
    size_t pending() const;
    /// Waits until nothing is pending, for at most `limit_ms`. Returns true if nothing is pending.
    bool drain(int limit_ms) const;

private:
    struct State;
    void add(uint32_t user, int fd, void* base, uint64_t length);
    std::shared_ptr<State> state_;
};

}  // namespace roci::rocid
