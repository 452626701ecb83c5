#pragma once
/// A descriptor that a process keeps for itself between registrations. It may turn out to be another process's (this one is a
/// child that was made without fork()'s handlers), or to be gone: a program that closes every descriptor closes ours too, and
/// what it opens next gets the number.

#include <sys/stat.h>

#include "sys.hpp"

namespace roci::memory {

class KeptFd {
public:
    KeptFd() = default;
    ~KeptFd() { drop(); }
    KeptFd(const KeptFd&) = delete;
    KeptFd& operator=(const KeptFd&) = delete;

    void keep(Fd fd) {
        drop();
        struct stat st {};
        if (!fd || ::fstat(fd.get(), &st) != 0) return;
        fd_ = std::move(fd);
        device_ = st.st_dev;
        inode_ = st.st_ino;
        process_ = ::getpid();
    }
    /// The descriptor, or -1 when there is none that this process may use.
    int get() const { return process_ == ::getpid() && is_same() ? fd_.get() : -1; }
    /// Closes it, unless the number is somebody else's by now.
    void drop() {
        if (is_same()) {
            fd_.reset();
        } else {
            fd_.release();
        }
    }

private:
    bool is_same() const {
        struct stat st {};
        return fd_ && ::fstat(fd_.get(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
    }

    Fd fd_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    pid_t process_ = 0;
};

}  // namespace roci::memory
