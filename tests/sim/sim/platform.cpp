#include "sim/platform.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace roci::sim {
namespace {

/// The memory of this process. rocid accesses the memory of its clients in the same way.
int own_memory() {
    static const int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    return fd;
}

/// Accesses memory by address. The simulated clients are in the same process.
class SelfProcess final : public mem::RemoteProcess {
public:
    SelfProcess(SimWorker& worker, std::shared_ptr<bool> alive) : worker_(worker), alive_(std::move(alive)) {}
    mem::SlowWorker* worker() override { return &worker_; }
    bool read(uint64_t at, std::byte* out, uint64_t n) override {
        if (!*alive_) return false;
        return pread(own_memory(), out, n, off_t(at)) == ssize_t(n);
    }
    bool write(uint64_t at, const std::byte* in, uint64_t n) override {
        if (!*alive_) return false;
        return pwrite(own_memory(), in, n, off_t(at)) == ssize_t(n);
    }

private:
    SimWorker& worker_;
    std::shared_ptr<bool> alive_;
};

}  // namespace

SimPlatform::SimPlatform(uint64_t seed, uint32_t engines)
    : random_(seed), engines_(engines), engine_page_(std::make_unique<abi::EnginePage>()), engine_page_token_(token()) {
    lent_[engine_page_token_] = {reinterpret_cast<std::byte*>(engine_page_.get()), sizeof(abi::EnginePage)};
}

SimPlatform::~SimPlatform() {
    for (auto& [fd, b] : blocks_) std::free(b.base);
}

host::SharedMemory SimPlatform::make_memory(uint64_t length, std::string& why) {
    if (fail_memory_after != 0 && --fail_memory_after == 0) {
        why = "the simulator was told to fail this allocation";
        return {};
    }
    const uint64_t rounded = (length + 4095) / 4096 * 4096;
    auto* base = static_cast<std::byte*>(std::aligned_alloc(4096, rounded));
    std::memset(base, 0, rounded);
    const int fd = token();
    blocks_[fd] = {base, length};
    return {base, length, fd};
}

/// Returns the block that a client has made by make_memory().
host::SharedMemory SimPlatform::map_chunk(int fd, uint64_t length, std::string& why) {
    const auto it = blocks_.find(fd);
    if (it != blocks_.end() && it->second.length == length) return {it->second.base, length, fd};
    why = "no such memory";
    return {};
}

void SimPlatform::free_memory(const host::SharedMemory& m) {
    auto it = blocks_.find(m.fd);
    if (it == blocks_.end()) std::abort();  // the block was freed twice or never existed
    std::free(it->second.base);
    blocks_.erase(it);
}

std::unique_ptr<mem::MappedRegion> SimPlatform::map_region(int fd, uint64_t length, bool writable, std::string& why) {
    auto it = lent_.find(fd);
    if (it != lent_.end() && length == 0) lent_.erase(it);  // with length 0 the caller only closes the token
    if (it == lent_.end() || length == 0 || it->second.length < length) {
        why = "no such memory";
        return nullptr;
    }
    auto r = std::make_unique<mem::MappedRegion>();
    r->base = it->second.base;
    r->length = length;
    r->writable = writable;
    lent_.erase(it);
    ++mapped_;
    return r;
}

void SimPlatform::unmap_region(mem::MappedRegion&) { --mapped_; }

std::unique_ptr<mem::RemoteProcess> SimPlatform::remote_process(int pid) {
    auto& worker = workers_[pid];
    if (worker == nullptr) worker = std::make_unique<SimWorker>(engines_, uint32_t(pid) % mem::SlowWorker::kMost, random());
    auto& alive = alive_[pid];
    if (alive == nullptr) alive = std::make_shared<bool>(true);
    return std::make_unique<SelfProcess>(*worker, alive);
}

void SimPlatform::end_process(int pid) {
    if (const auto it = alive_.find(pid); it != alive_.end()) *it->second = false;
}

SimWorker* SimPlatform::worker(int pid) {
    const auto it = workers_.find(pid);
    return it != workers_.end() ? it->second.get() : nullptr;
}

bool SimPlatform::run_workers(Nanos now) {
    bool any = false;
    for (auto& [pid, worker] : workers_) any |= worker->run(now);
    return any;
}

Nanos SimPlatform::next_worker() const {
    Nanos next = kNever;
    for (const auto& [pid, worker] : workers_) next = std::min(next, worker->next_deadline());
    return next;
}

int SimPlatform::make_event_pipe(uint32_t session, uint32_t channel) { return pipes_[{session, channel}] = token(); }
void SimPlatform::close_event_pipe(uint32_t session, uint32_t channel) {
    pipes_.erase({session, channel});
    completions.erase({session, channel});
    if (channel == abi::kNoHandle) asyncs.erase(session);
}
void SimPlatform::send_async(uint32_t session, const abi::AsyncEventRecord& record) {
    if (pipe_open(session, abi::kNoHandle)) asyncs[session].push_back(record);
}

int SimPlatform::make_wake_fd(uint32_t, uint32_t) { return token(); }
void SimPlatform::close_wake_fds(uint32_t) {}
int SimPlatform::engine_page_fd() { return engine_page_token_; }

int SimPlatform::make_text_fd(const std::string& text) {
    const int fd = token();
    texts_[fd] = text;
    return fd;
}

std::byte* SimPlatform::memory_of(int fd) const {
    if (auto it = blocks_.find(fd); it != blocks_.end()) return it->second.base;
    if (auto it = lent_.find(fd); it != lent_.end()) return it->second.base;
    return nullptr;
}

int SimPlatform::lend(std::byte* memory, uint64_t length) {
    const int fd = token();
    lent_[fd] = {memory, length};
    return fd;
}

std::string SimPlatform::text_of(int fd) const {
    auto it = texts_.find(fd);
    return it == texts_.end() ? "" : it->second;
}

}  // namespace roci::sim
