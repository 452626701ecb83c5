#include "remote_process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace roci::rocid {
namespace {

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

/// Returns true if the descriptor refers to a file /proc/PID/mem. rocid may have more rights than the client, so rocid must not
/// write to another file of procfs. A client can mount another file of procfs at a path that ends in "/mem". So the function
/// returns false for the root of a mount.
bool is_memory_of_process(int fd) {
    constexpr long kProc = 0x9fa0;
    constexpr std::string_view kName = "/mem";
    constexpr mode_t kMode = S_IFREG | 0600;
    struct statfs f {};
    struct statx s {};
    char path[256];
    if (fstatfs(fd, &f) != 0 || f.f_type != kProc) return false;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE, &s) != 0 || s.stx_mode != kMode) return false;
    const bool is_known = (s.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;  // Linux 5.8
    if (!is_known || (s.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) return false;
    const ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return n > 0 && size_t(n) < sizeof path && std::string_view(path, size_t(n)).ends_with(kName);
}

}  // namespace

std::unique_ptr<ProcMemory> ProcMemory::open(int pid, uint32_t uid, std::shared_ptr<mem::SlowWorker> worker) {
    const std::string folder = "/proc/" + std::to_string(pid);
    const int fd = ::open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    auto memory = std::unique_ptr<ProcMemory>(new ProcMemory(fd, std::move(worker), true, [](int own) { ::close(own); }));
    // Checks the owner of the folder after the opening of the file. If the process changed its user before the opening, the
    // folder belongs to the new user. (If the user must not trace the process, the folder belongs to root.)
    struct stat s {};
    if (stat(folder.c_str(), &s) != 0 || s.st_uid != uid) return nullptr;
    return memory;
}

std::unique_ptr<ProcMemory> ProcMemory::of_client(int fd, std::shared_ptr<mem::SlowWorker> worker,
                                                  std::function<void(int)> close) {
    return std::unique_ptr<ProcMemory>(new ProcMemory(fd, std::move(worker), false, std::move(close)));
}

ProcMemory::~ProcMemory() { close_(fd_); }

bool ProcMemory::is_good() {
    if (!std::exchange(checked_, true)) good_ = is_memory_of_process(fd_);
    return good_;
}

bool ProcMemory::read(uint64_t address, std::byte* out, uint64_t length) {
    if (!is_good()) return false;
    while (length != 0) {
        const ssize_t n = pread(fd_, out, length, off_t(address));
        if (n <= 0) return false;
        out += n;
        address += uint64_t(n);
        length -= uint64_t(n);
    }
    return true;
}

bool ProcMemory::write(uint64_t address, const std::byte* in, uint64_t length) {
    if (!is_good()) return false;
    while (length != 0) {
        const ssize_t n = pwrite(fd_, in, length, off_t(address));
        if (n <= 0) return false;
        in += n;
        address += uint64_t(n);
        length -= uint64_t(n);
    }
    return true;
}

}  // namespace roci::rocid
