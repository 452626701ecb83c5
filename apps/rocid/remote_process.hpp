// Accesses client memory that cannot be mapped, by the address in the client's process. Such accesses are slow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "mem/slow_memory.hpp"

namespace roci::rocid {

/// Reads and writes through a descriptor of /proc/PID/mem. If the client itself has opened the descriptor, rocid needs no
/// privilege. A descriptor refers to the address space at the time of opening. So rocid, which may be root, cannot access another
/// process after a PID was reused, or after the client has executed a set-user-ID program. process_vm_readv(2) would not have
/// this property.
class ProcMemory final : public mem::RemoteProcess {
public:
    /// Opens /proc/PID/mem of process `pid`. `worker` is the worker of the user. Returns nullptr if the access is not permitted,
    /// or if the process does not belong to user `uid`.
    static std::unique_ptr<ProcMemory> open(int pid, uint32_t uid, std::shared_ptr<mem::SlowWorker> worker);
    /// Uses a descriptor that the client has opened. The first access checks the descriptor. All accesses run on the worker's
    /// thread, because an operation on a client's descriptor may block. The destructor passes the descriptor to `close`.
    static std::unique_ptr<ProcMemory> of_client(int fd, std::shared_ptr<mem::SlowWorker> worker, std::function<void(int)> close);
    ~ProcMemory() override;

    bool read(uint64_t client_address, std::byte* out, uint64_t length) override;
    bool write(uint64_t client_address, const std::byte* in, uint64_t length) override;

    mem::SlowWorker* worker() override { return worker_.get(); }

private:
    ProcMemory(int fd, std::shared_ptr<mem::SlowWorker> worker, bool checked, std::function<void(int)> close)
        : fd_(fd), worker_(std::move(worker)), close_(std::move(close)), checked_(checked), good_(checked) {}
    bool is_good();
    const int fd_;
    const std::shared_ptr<mem::SlowWorker> worker_;
    const std::function<void(int)> close_;
    bool checked_, good_;  ///< used only by the worker's thread
};

}  // namespace roci::rocid
