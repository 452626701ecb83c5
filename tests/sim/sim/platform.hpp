// The implementation of host::Platform in plain memory. The conductor (rocid's control thread) calls the operating system through
// this interface. A descriptor is a token: a number far above real descriptors that identifies a block of memory. So a simulated
// client can "map" the descriptors of a reply.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "abi/rings.hpp"
#include "host/conductor.hpp"
#include "sim/slow_worker.hpp"

namespace roci::sim {

class SimPlatform final : public host::Platform {
public:
    SimPlatform(uint64_t seed, uint32_t engines);
    ~SimPlatform() override;

    uint64_t random() override { return random_ += 0x9e3779b97f4a7c15u; }
    host::SharedMemory make_memory(uint64_t length, std::string& why) override;
    void free_memory(const host::SharedMemory&) override;
    host::SharedMemory map_chunk(int fd, uint64_t length, std::string& why) override;
    std::unique_ptr<mem::MappedRegion> map_region(int fd, uint64_t length, bool writable, std::string& why) override;
    void unmap_region(mem::MappedRegion&) override;
    std::unique_ptr<mem::RemoteProcess> remote_process(int pid) override;
    int make_event_pipe(uint32_t session, uint32_t channel) override;
    void close_event_pipe(uint32_t session, uint32_t channel) override;
    void send_async(uint32_t session, const abi::AsyncEventRecord& record) override;
    int make_wake_fd(uint32_t session, uint32_t engine) override;
    void close_wake_fds(uint32_t session) override;
    int engine_page_fd() override;
    std::string host_status_json() override { return "{}"; }
    int make_text_fd(const std::string& text) override;

    // Simulated processes, and the workers that access the memory of these processes by address.
    int new_pid() { return ++last_pid_; }
    /// Ends a process. Later accesses to its memory by address fail.
    void end_process(int pid);
    /// Returns the worker of a process, or nullptr if no access has needed a worker yet.
    SimWorker* worker(int pid);
    bool run_workers(Nanos now);
    void finish_workers(Nanos now) {
        for (auto& [pid, worker] : workers_) worker->finish(now);
    }
    Nanos next_worker() const;

    /// Returns the memory that the token identifies, or nullptr.
    std::byte* memory_of(int fd) const;
    /// Returns a token for memory of a client. The client passes the token to add_region.
    int lend(std::byte* memory, uint64_t length);
    /// Returns the status text that the token identifies.
    std::string text_of(int fd) const;

    /// The records that were sent to the event sockets of a session. Records for a closed socket are dropped, as in rocid.
    std::map<std::pair<uint32_t, uint32_t>, std::deque<abi::CompEventRecord>> completions;
    std::map<uint32_t, std::deque<abi::AsyncEventRecord>> asyncs;
    bool pipe_open(uint32_t session, uint32_t channel) const { return pipes_.contains({session, channel}); }

    /// If this number n is greater than 0, the n-th allocation from now on fails. Tests use it to simulate a shortage
    /// of memory.
    uint32_t fail_memory_after = 0;
    uint64_t blocks() const { return blocks_.size(); }
    uint64_t mapped() const { return mapped_; }

private:
    struct Block {
        std::byte* base;
        uint64_t length;
    };
    uint64_t random_;
    const uint32_t engines_;
    int last_pid_ = 0;
    std::map<int, std::unique_ptr<SimWorker>> workers_;
    std::map<int, std::shared_ptr<bool>> alive_;
    int token() { return next_token_++; }
    int next_token_ = 1'000'000'000;
    std::map<int, Block> blocks_;  // blocks from make_memory()
    std::map<int, Block> lent_;    // memory of clients
    std::map<int, std::string> texts_;
    std::map<std::pair<uint32_t, uint32_t>, int> pipes_;
    std::unique_ptr<abi::EnginePage> engine_page_;
    int engine_page_token_;
    uint64_t mapped_ = 0;
};

}  // namespace roci::sim
