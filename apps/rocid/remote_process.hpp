// Access by address to client memory that cannot be mapped. It is slow.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "mem/slow_memory.hpp"

namespace roci::rocid {

/// Reads and writes through /proc/PID/mem rather than process_vm_readv(2): a descriptor of /proc/PID/mem is bound to the address
/// space at the time of opening. So neither a reused PID nor a client that executes a set-user-ID program can make rocid, which
/// may be root, access memory that the client itself could not access.
class ProcMemory final : public mem::RemoteProcess {
public:
    /// `worker` is the worker of the user. Returns nullptr if the access is not permitted, or if the process does not belong to
    /// user `uid`.
    static std::unique_ptr<ProcMemory> open(int pid, uint32_t uid, std::shared_ptr<mem::SlowWorker> worker);
    ~ProcMemory() override;

    bool read(uint64_t client_address, std::byte* out, uint64_t length) override;
    bool write(uint64_t client_address, const std::byte* in, uint64_t length) override;

    mem::SlowWorker* worker() override { return worker_.get(); }

private:
    ProcMemory(int fd, std::shared_ptr<mem::SlowWorker> worker) : fd_(fd), worker_(std::move(worker)) {}
    const int fd_;
    const std::shared_ptr<mem::SlowWorker> worker_;
};

}  // namespace roci::rocid
