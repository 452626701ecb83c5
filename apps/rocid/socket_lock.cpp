#include "socket_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pmd_glue/eal.hpp"

namespace roci::rocid {
namespace {

/// Number of attempts to get the lock. A terminating rocid holds the lock until it has ended, so a new rocid may have to wait.
constexpr int kTries = 20;
constexpr useconds_t kBetween = 50'000;

}  // namespace

SocketLock::SocketLock(const std::string& socket, const std::string& other) : path_(socket + ".lock") {
    Took took = take();
    for (int tries = 1; tries < kTries && (took == Took::held || took == Took::gone); ++tries) {
        if (took == Took::held) usleep(kBetween);
        took = take();
    }
    if (took != Took::yes) {
        const int error = errno;
        const std::string why = took != Took::failed
                                    ? "'" + socket + "' is taken by another rocid" + holder() + ": use that one, stop it"
                                    : "cannot lock '" + path_ + "': " + std::strerror(error) +
                                          (error == EACCES || error == EPERM ? "; run as root" : "");
        if (fd_ >= 0) close(fd_);
        throw pmd::StartError(why + ", or " + other);
    }
    if (ftruncate(fd_, 0) == 0) dprintf(fd_, "%d\n", getpid());
}

SocketLock::~SocketLock() {
    if (ours()) unlink(path_.c_str());
    close(fd_);
}

bool SocketLock::ours() const {
    struct stat named {};
    struct stat locked {};
    return fstat(fd_, &locked) == 0 && stat(path_.c_str(), &named) == 0 && named.st_ino == locked.st_ino &&
           named.st_dev == locked.st_dev;
}

/// Tries to lock the file. Returns Took::gone if the previous owner removed the file between open() and flock(), because the lock
/// of a removed file has no effect on other processes.
SocketLock::Took SocketLock::take() {
    if (fd_ >= 0) close(fd_);
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return Took::failed;
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Took::held : Took::failed;
    return ours() ? Took::yes : Took::gone;
}

/// Reads the owner's process ID from the file.
std::string SocketLock::holder() const {
    char text[16]{};
    const bool read = pread(fd_, text, sizeof text - 1, 0) > 0;
    const int pid = read ? std::atoi(text) : 0;
    return pid > 0 ? " (process " + std::to_string(pid) + ")" : "";
}

/// Connects a datagram socket. The kernel returns ECONNREFUSED if no server exists. If a server of rocid or DPDK exists, the
/// kernel returns EPROTOTYPE, because these servers do not use datagram sockets.
bool deserted(const std::string& path) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::copy_n(path.c_str(), std::min(path.size(), sizeof a.sun_path - 1), a.sun_path);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool refused = connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

}  // namespace roci::rocid
