// A lock file next to a socket. The file contains the process ID of the rocid that owns the socket, and is locked while this
// rocid runs. The owner of the lock may remove a socket that a killed rocid has left.
#pragma once

#include <cstdint>
#include <string>

namespace roci::rocid {

class SocketLock {
public:
    /// Takes the lock. If another rocid holds the lock, retries for one second, because the other rocid may be ending. Throws
    /// pmd::StartError if the other rocid keeps the lock, or if the file cannot be created. `other` is a hint for the error text
    /// that explains how to select another socket.
    SocketLock(const std::string& socket, const std::string& other);
    /// Releases the lock. Removes the lock file if ours() is true.
    ~SocketLock();
    SocketLock(const SocketLock&) = delete;
    /// Returns true if the path still names the locked file. If the file was removed, the socket may belong to another rocid.
    bool ours() const;

private:
    enum class Took : uint8_t { yes, held, gone, failed };
    Took take();
    std::string holder() const;

    const std::string path_;
    int fd_ = -1;
};

/// Returns true if no process listens on the socket at the path. Does not connect to a server, because some servers accept only
/// one peer.
bool deserted(const std::string& path);

}  // namespace roci::rocid
