#include "device_page.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "pmd_glue/eal.hpp"

// A constant of Linux 5.1. The C library's headers may be older.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace roci::rocid {
namespace {

constexpr uint32_t kLine = 64;
constexpr uint32_t round_up(size_t n) { return uint32_t((n + kLine - 1) / kLine * kLine); }

abi::DevicePageHeader layout(uint32_t devices) {
    abi::DevicePageHeader h{};
    h.magic = abi::kDevicePageMagic;
    h.devices = devices;
    h.owner = round_up(sizeof h);
    h.first = h.owner + round_up(sizeof(pthread_mutex_t));
    h.stride = round_up(sizeof(abi::DeviceRecord));
    h.bytes = h.first + devices * h.stride;
    return h;
}

/// Initializes and locks a robust mutex. The kernel changes the first word of the mutex when the calling thread ends, even by
/// SIGKILL. Returns 0 or an errno.
int take_ownership(pthread_mutex_t* mutex) {
    static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    int err = pthread_mutex_init(mutex, &attr);
    if (err == 0) err = pthread_mutex_lock(mutex);
    pthread_mutexattr_destroy(&attr);
    return err;
}

}  // namespace

DevicePage::DevicePage(uint32_t devices) : header_(layout(devices)) {
    constexpr int kReadOnly = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    fd_ = memfd_create("rocid-devices", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void* p = MAP_FAILED;
    if (fd_ >= 0 && ftruncate(fd_, header_.bytes) == 0)
        p = mmap(nullptr, header_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (p == MAP_FAILED || fcntl(fd_, F_ADD_SEALS, kReadOnly) != 0) {
        const int error = errno;
        if (p != MAP_FAILED) munmap(p, header_.bytes);
        if (fd_ >= 0) close(fd_);
        throw pmd::StartError(std::string("no shared memory for the device page: ") + std::strerror(error));
    }
    base_ = static_cast<std::byte*>(p);
    std::memcpy(base_, &header_, sizeof header_);
    for (uint32_t d = 0; d < devices; ++d) new (base_ + header_.first + size_t{d} * header_.stride) abi::DeviceRecord{};
    if (const int err = take_ownership(reinterpret_cast<pthread_mutex_t*>(base_ + header_.owner)); err != 0) {
        munmap(base_, header_.bytes);
        close(fd_);
        throw pmd::StartError(std::string("no robust futex for the device page: ") + std::strerror(err));
    }
    owned_ = true;
}

DevicePage::~DevicePage() {
    end();
    munmap(base_, header_.bytes);
    close(fd_);
}

void DevicePage::publish(uint32_t device, const abi::DeviceSnapshot& now) {
    if (device >= header_.devices) return;
    reinterpret_cast<abi::DeviceRecord*>(base_ + header_.first + size_t{device} * header_.stride)->write(now);
}

void DevicePage::end() {
    if (!owned_) return;
    owned_ = false;
    pthread_mutex_unlock(reinterpret_cast<pthread_mutex_t*>(base_ + header_.owner));
}

}  // namespace roci::rocid
