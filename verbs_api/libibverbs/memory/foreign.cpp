#include "foreign.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

namespace roci::memory {
namespace {

bool is_file(const struct stat& st, const Vma& vma) {
    return S_ISREG(st.st_mode) && st.st_dev == vma.device && st.st_ino == vma.inode;
}
bool is_file(int fd, const Vma& vma) {
    struct stat st {};
    return ::fstat(fd, &st) == 0 && is_file(st, vma);
}
bool open_for_writing(int fd) { return (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR; }

/// Opens the file by its path. First checks that the path names the file of the mapping, because opening a device can have side
/// effects.
Fd open_path(const char* path, const Vma& vma, bool want_write) {
    struct stat st {};
    if (::stat(path, &st) != 0 || !is_file(st, vma)) return Fd();
    Fd fd(::open(path, (want_write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
    return fd && is_file(fd.get(), vma) ? std::move(fd) : Fd();
}

Fd from_map_files(const Vma& vma, bool want_write) {
    char path[96];
    std::snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", vma.start, vma.end);
    return open_path(path, vma, want_write);
}

/// Duplicates a descriptor of the program for the file of the mapping. With `want_write`, prefers a descriptor that is open for
/// writing. If no descriptor is open for writing, tries to reopen the file for writing.
Fd from_open_descriptors(const Vma& vma, bool want_write) {
    DIR* folder = ::opendir("/proc/self/fd");
    if (!folder) return Fd();
    int found = -1;
    while (const dirent* entry = ::readdir(folder)) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        const int fd = std::atoi(entry->d_name);
        if (!is_file(fd, vma) || (::fcntl(fd, F_GETFL) & O_PATH)) continue;
        found = fd;
        if (open_for_writing(fd) || !want_write) break;
    }
    ::closedir(folder);
    if (found < 0) return Fd();
    if (!open_for_writing(found) && want_write) {
        char path[64];
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", found);
        if (Fd again = open_path(path, vma, true)) return again;
    }
    return Fd(::fcntl(found, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

Fd open_mapped_file(const Vma& vma, bool& writable, uint64_t& length) {
    const bool want = writable;
    Fd fd = from_map_files(vma, want);
    if (!fd) fd = from_open_descriptors(vma, want);
    if (!fd && vma.name[0] == '/') fd = open_path(vma.name, vma, want);
    if (!fd && vma.name[0] == '/' && want) fd = open_path(vma.name, vma, false);
    struct stat st {};
    if (!fd || !is_file(fd.get(), vma) || ::fstat(fd.get(), &st) != 0) return Fd();
    writable = open_for_writing(fd.get());
    length = static_cast<uint64_t>(st.st_size);
    return fd;
}

}  // namespace roci::memory
