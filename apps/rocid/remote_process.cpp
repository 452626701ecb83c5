#include "remote_process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace roci::rocid {

std::unique_ptr<ProcMemory> ProcMemory::open(int pid, uint32_t uid, std::shared_ptr<mem::SlowWorker> worker) {
    const std::string folder = "/proc/" + std::to_string(pid);
    const int fd = ::open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    auto memory = std::unique_ptr<ProcMemory>(new ProcMemory(fd, std::move(worker)));
    // The check comes after opening: if the process changed its user before, the owner of its folder shows this now. (The folder
    // of a process that its own user must not trace belongs to root.)
    struct stat s {};
    if (stat(folder.c_str(), &s) != 0 || s.st_uid != uid) return nullptr;
    return memory;
}

ProcMemory::~ProcMemory() { close(fd_); }

bool ProcMemory::read(uint64_t address, std::byte* out, uint64_t length) {
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
