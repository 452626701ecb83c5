// Lets go of what clients gave, on threads that may hang. close() of a descriptor can wait as long as its owner likes: a TCP
// socket with SO_LINGER, a file of a FUSE server. The last munmap() of shared memory frees it, which takes time by its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace roci::rocid {

/// Each user's things are let go one after the other, by one thread at a time: who hangs delays its own only. All calls are
/// thread-safe and return at once.
class Reaper {
public:
    /// So many descriptors of one user wait to be closed: its sessions get no further ones (ControlSocket).
    static constexpr size_t kMostClosing = 1024;

    Reaper();
    /// Threads that hang are left behind; the kernel ends them with the process.
    ~Reaper();
    Reaper(const Reaper&) = delete;

    void close(uint32_t user, int fd);
    /// Nobody may be accessing the mapping any more. Its address range is not used again until it is gone.
    void unmap(uint32_t user, void* base, uint64_t length);

    /// Descriptors that are not closed yet.
    size_t closing(uint32_t user) const;
    /// Descriptors and mappings of everybody.
    size_t pending() const;
    /// Waits until nothing is pending, or `limit_ms` are over. True: nothing is.
    bool drain(int limit_ms) const;

private:
    struct State;
    void add(uint32_t user, int fd, void* base, uint64_t length);
    std::shared_ptr<State> state_;
};

}  // namespace roci::rocid
