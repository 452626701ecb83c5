#pragma once
/// A descriptor that the library keeps between registrations. It may belong to the parent process, if this process was created
/// without fork()'s handlers. A program that closes all its descriptors also closes this one, and its number may be reused.

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
    /// Returns the descriptor, or -1 if there is none that this process may use.
    int get() const { return process_ == ::getpid() && is_same() ? fd_.get() : -1; }
    /// Closes the descriptor, but not if another file uses its number now.
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
