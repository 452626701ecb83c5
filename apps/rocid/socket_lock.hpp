// A lock file next to a socket names the rocid that owns the socket, and stays locked while that rocid lives. The owner of the
// lock may remove a socket that a killed rocid left behind.
#pragma once

#include <cstdint>
#include <string>

namespace roci::rocid {

class SocketLock {
public:
    /// Takes the lock. If another rocid has the lock, tries again for a second, because the owner may be about to end. Throws
    /// pmd::StartError if the owner keeps the lock (the text names its process), or if the file cannot be created. `other` is a
    /// hint how the user selects another socket.
    SocketLock(const std::string& socket, const std::string& other);
    /// Removes the lock file, if ours() is true, and releases the lock.
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

/// Returns true if no process serves the socket at the path. Makes no connection, because some servers would take the caller for
/// their peer.
bool deserted(const std::string& path);

}  // namespace roci::rocid
