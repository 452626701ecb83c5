// Threads that access clients' memory by address (mem/slow_memory.hpp). Each user has a separate thread, because a client can
// delay such an access without limit, for example by userfaultfd or a FUSE server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "mem/slow_memory.hpp"
#include "pmd_glue/wake_flag.hpp"

namespace roci::rocid {

class SlowThreads {
public:
    /// `lcores` are the wake flags of the lcores, by engine. A thread wakes lcores[i] when a request of engine i is done.
    explicit SlowThreads(std::vector<pmd::WakeFlag*> lcores);
    /// Waits up to one second for submitted requests. Threads that are blocked longer end with the process.
    ~SlowThreads();
    SlowThreads(const SlowThreads&) = delete;

    /// Returns the worker of a user. The worker's thread ends when all returned pointers are destroyed. Returns nullptr if too
    /// many users have a worker, or if no thread could be started. Called only by the conductor (rocid's control thread).
    std::shared_ptr<mem::SlowWorker> of(uint32_t user);
    /// Returns the number of running threads, including blocked ones.
    size_t threads() const;
    /// Waits at most `limit_ms` until all submitted requests are served. Returns true if all requests are served.
    bool drain(int limit_ms) const;

private:
    struct Shared;
    class Worker;
    std::shared_ptr<Shared> shared_;
    std::map<uint32_t, std::weak_ptr<mem::SlowWorker>> workers_;  ///< by user; some workers have ended
};

}  // namespace roci::rocid
