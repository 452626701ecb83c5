#pragma once
/// A descriptor that the library keeps between registrations. If this process was created by clone() or _Fork(), which run no
/// fork handlers, the descriptor may still belong to the parent. If the program closes all its descriptors, the number of this
/// descriptor may be reused. So each use checks the process and the file.

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
    /// Closes the descriptor, unless its number now belongs to another file.
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
