// Access by address to client memory that cannot be mapped; slow.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "mem/memory_region.hpp"

namespace roci::rocid {

/// Reads and writes through /proc/PID/mem rather than process_vm_readv, because its descriptor is bound to the address space at
/// the time of opening. So neither a reused PID nor a client that executes a set-user-ID program can make rocid, which may be
/// root, access memory that the client itself could not access.
class ProcMemory final : public mem::RemoteProcess {
public:
    /// nullptr: not permitted, or the process does not (or no longer) belong to user `uid`.
    static std::unique_ptr<ProcMemory> open(int pid, uint32_t uid);
    ~ProcMemory() override;

    bool read(uint64_t client_address, std::byte* out, uint64_t length) override;
    bool write(uint64_t client_address, const std::byte* in, uint64_t length) override;

    uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }

private:
    explicit ProcMemory(int fd) : fd_(fd) {}
    const int fd_;
    std::atomic<uint64_t> operations_{0};
};

}  // namespace roci::rocid
