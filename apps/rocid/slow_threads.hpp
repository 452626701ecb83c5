// Threads that access clients' memory by address, one per user. Such an access can last as long as the client likes (userfaultfd
// or a FUSE server delays a page), so no thread that serves other users makes one (mem/slow_memory.hpp).
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
    /// lcores[i] is woken when a request of engine i is done.
    explicit SlowThreads(std::vector<pmd::WakeFlag*> lcores);
    /// Waits up to a second for submitted requests. Threads that are still blocked after this time end with the process.
    ~SlowThreads();
    SlowThreads(const SlowThreads&) = delete;

    /// Returns the worker of a user. The thread of the worker ends when the last returned pointer is gone. Returns nullptr if too
    /// many users have a worker, or if no thread could be started. Called by the conductor only.
    std::shared_ptr<mem::SlowWorker> of(uint32_t user);
    /// Returns the number of running threads, including blocked ones.
    size_t threads() const;
    /// Waits until all submitted requests are served, for at most `limit_ms`. Returns true if all are served.
    bool drain(int limit_ms) const;

private:
    struct Shared;
    class Worker;
    std::shared_ptr<Shared> shared_;
    std::map<uint32_t, std::weak_ptr<mem::SlowWorker>> workers_;  ///< by user; some have ended
};

}  // namespace roci::rocid
