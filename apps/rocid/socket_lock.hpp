// A socket's name is one rocid's: a file beside it, locked as long as that rocid lives. Who has the lock may remove a socket that
// a killed rocid left behind.
#pragma once

#include <cstdint>
#include <string>

namespace roci::rocid {

class SocketLock {
public:
    /// Throws pmd::StartError: another rocid has it (says which), or no file can be made there. One that is just ending is waited
    /// for. `other`: how to name another socket.
    SocketLock(const std::string& socket, const std::string& other);
    /// Removes the file.
    ~SocketLock();
    SocketLock(const SocketLock&) = delete;
    /// The file of that name is still the one that is locked; if somebody has removed it, the socket may be another rocid's as
    /// well.
    bool ours() const;

private:
    enum class Took : uint8_t { yes, held, gone, failed };
    Took take();
    std::string holder() const;

    const std::string path_;
    int fd_ = -1;
};

/// Nobody serves the socket at the path any more. Asked without a connection, which some servers would take for their peer's.
bool deserted(const std::string& path);

}  // namespace roci::rocid
