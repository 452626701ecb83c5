#pragma once
/// A descriptor that the library keeps open between registrations. Each use checks the process and the file, for two reasons. If
/// clone() or _Fork() created this process, no fork handler ran, and the descriptor still belongs to the parent. If the program
/// has closed all its descriptors, the number of this descriptor may now belong to another file.

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
    /// Returns the descriptor. Returns -1 if there is no descriptor, or if the descriptor fails the checks above.
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
