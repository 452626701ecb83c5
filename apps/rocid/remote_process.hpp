// Access by address to client memory that cannot be mapped. Such accesses are slow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "mem/slow_memory.hpp"

namespace roci::rocid {

/// Reads and writes through /proc/PID/mem. If the client itself has opened the descriptor, rocid needs no privilege, and the
/// client gives away only its own rights. rocid does not use process_vm_readv, because only the descriptor is bound to the
/// address space at the time of opening. So neither a reused PID nor a client that executes a set-user-ID program can make rocid,
/// which may be root, access memory that the client itself could not access.
class ProcMemory final : public mem::RemoteProcess {
public:
    /// `worker` is the worker of the user. Returns nullptr if the access is not permitted, or if the process does not belong to
    /// user `uid`.
    static std::unique_ptr<ProcMemory> open(int pid, uint32_t uid, std::shared_ptr<mem::SlowWorker> worker);
    /// Uses the client's own descriptor. The first access checks the descriptor on the worker's thread, because an operation on a
    /// client's descriptor may block. The destructor passes the descriptor to `close`.
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
