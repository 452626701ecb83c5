#include "fork.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "freeze.hpp"
#include "maps.hpp"
#include "room.hpp"

namespace roci::memory {
namespace {

constexpr int kMostWaitMs = 60'000;  ///< longest wait for the child, because a debugger may have stopped the child

int done_pipe[2] = {-1, -1};
sigset_t mask_before;

void close_end(int end) {
    if (done_pipe[end] >= 0) ::close(done_pipe[end]);
    done_pipe[end] = -1;
}

/// Takes room_mutex and creates the pipe by which the parent waits. Also blocks all signals until in_parent() or in_child() is
/// done, because a signal handler must not run in a child that still shares memory.
void before_fork() {
    sigset_t waiting = all_but_sigsegv(), all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &waiting, &mask);
    pthread_mutex_lock(&room_mutex);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    mask_before = mask;
    // If no pipe can be created, the parent does not wait. The child may then see later writes of the parent.
    if (room && ::pipe2(done_pipe, O_CLOEXEC) != 0) done_pipe[0] = done_pipe[1] = -1;
}

void leave() {
    const sigset_t mask = mask_before;
    pthread_mutex_unlock(&room_mutex);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

/// Waits until the child has copied the shared memory or has ended, and then undoes before_fork(). The wait is a poll() of the
/// parent's end of the pipe, with the time limit kMostWaitMs. If there is no pipe, does not wait.
void in_parent() {
    close_end(1);
    if (done_pipe[0] >= 0) {
        pollfd wait{.fd = done_pipe[0], .events = POLLIN, .revents = 0};
        while (::poll(&wait, 1, kMostWaitMs) < 0 && errno == EINTR) {
        }
    }
    close_end(0);
    leave();
}

// ---- the child ------------------------------------------------------------------------------------------------------

/// Copies the content of a mapping to `to`. Reads from the file and skips holes. If `fd` is -1, reads from the mapping.
bool copy_content(const Vma& vma, int fd, char* to) {
    const uint64_t length = vma.end - vma.start;
    if (fd < 0) {
        std::memcpy(to, pointer(vma.start), length);
        return true;
    }
    const off_t end = static_cast<off_t>(vma.offset + length);
    for (off_t at = static_cast<off_t>(vma.offset); at < end;) {
        const off_t data = ::lseek(fd, at, SEEK_DATA);
        if (data < 0 || data >= end) return data >= 0 || errno == ENXIO;
        const off_t stop = std::min(end, ::lseek(fd, data, SEEK_HOLE));
        for (at = data; at < stop;) {
            const ssize_t n = ::pread(fd, to + (at - static_cast<off_t>(vma.offset)), static_cast<size_t>(stop - at), at);
            if (n <= 0) return false;
            at += n;
        }
    }
    return true;
}

bool replace_by_copy(const Vma& vma, int fd) {
    const uint64_t length = vma.end - vma.start;
    void* copy = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copy == MAP_FAILED) return false;
    if (!vma.read && fd < 0) ::mprotect(pointer(vma.start), length, PROT_READ);
    if (!copy_content(vma, fd, static_cast<char*>(copy))) return false;
    if (::mprotect(copy, length, vma.protection()) != 0) return false;
    return ::mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(vma.start)) != MAP_FAILED;
}

/// Aborts the child. Without a private copy, the child would write into the memory of its parent.
[[noreturn]] void give_up() {
    constexpr char kMessage[] = "rocinante: a fork's child could not get its own copy of registered memory; it ends here\n";
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    ::abort();
}

/// Replaces all adopted mappings (adopt.hpp) of the child by private copies. The memory is still shared, so this function writes
/// only to its stack and to variables of this library.
void make_private() {
    char buffer[4096];
    MapsText maps(buffer);
    Vma vma;
    while (maps.next(vma)) {
        if (!is_adopted(vma)) continue;
        const File* file = room->files.find(vma.device, vma.inode, true);
        if (!replace_by_copy(vma, file && is_intact(*file) ? file->fd.get() : -1)) give_up();
    }
    if (maps.failed()) give_up();
}

void in_child() {
    close_end(0);
    if (room) {
        make_private();
        for (const auto& file : room->files.all()) {
            if (is_intact(*file)) ::close(file->fd.get());
        }
        room->maps.drop();
        room->uffd.drop();
    }
    room = nullptr;  // the Room leaks: its destructor would close descriptor numbers that the child may have reused
    forget_way();
    reset_fault_handler();
    if (done_pipe[1] >= 0) {
        while (::write(done_pipe[1], "", 1) < 0 && errno == EINTR) {
        }
    }
    close_end(1);
    leave();
}

/// Child handlers run in the order of registration. This constructor runs when the library is loaded, so that in_child() is among
/// the first handlers.
[[gnu::constructor]] void at_load() { watch_forks(); }

}  // namespace

void watch_forks() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] { pthread_atfork(before_fork, in_parent, in_child); });
}

}  // namespace roci::memory
