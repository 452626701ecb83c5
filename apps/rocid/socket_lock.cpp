#include "socket_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "pmd_glue/eal.hpp"

namespace roci::rocid {

SocketLock::SocketLock(const std::string& socket, const std::string& other) : path_(socket + ".lock") {
    Took took = take();
    while (took == Took::gone) took = take();
    if (took != Took::yes) {
        const std::string why = took == Took::held
                                    ? "'" + socket + "' is taken by another rocid" + holder() + ": use that one, stop it"
                                    : "cannot lock '" + path_ + "': " + std::strerror(errno) + "; run as root";
        if (fd_ >= 0) close(fd_);
        throw pmd::StartError(why + ", or " + other);
    }
}

SocketLock::~SocketLock() {
    unlink(path_.c_str());
    close(fd_);
}

/// Gone: whoever had the file has removed it since we opened it, and its name is, or will be, another file's.
SocketLock::Took SocketLock::take() {
    if (fd_ >= 0) close(fd_);
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return Took::failed;
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Took::held : Took::failed;
    struct stat named {};
    struct stat locked {};
    const bool same = fstat(fd_, &locked) == 0 && stat(path_.c_str(), &named) == 0 && named.st_ino == locked.st_ino &&
                      named.st_dev == locked.st_dev;
    return same ? Took::yes : Took::gone;
}

/// As the kernel knows it; "" where it does not tell (a process of another container).
std::string SocketLock::holder() const {
    struct stat s {};
    if (fstat(fd_, &s) != 0) return "";
    const std::string file = fmt::format(" {:02x}:{:02x}:{} ", major(s.st_dev), minor(s.st_dev), s.st_ino);
    std::ifstream locks("/proc/locks");
    for (std::string line, number, kind, manner, access, pid; std::getline(locks, line);)
        if (line.find(file) != std::string::npos && std::istringstream(line) >> number >> kind >> manner >> access >> pid)
            return " (process " + pid + ")";
    return "";
}

}  // namespace roci::rocid
