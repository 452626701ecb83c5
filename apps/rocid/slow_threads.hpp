// Threads that reach clients' memory by address: one per user. An access waits for as long as the client likes (a page that
// userfaultfd or a FUSE server holds back), so no thread that serves others makes one (mem/slow_memory.hpp).
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
    /// lcores[i] is woken when something of engine i is done.
    explicit SlowThreads(std::vector<pmd::WakeFlag*> lcores);
    /// Threads that hang are left behind; the kernel ends them with the process.
    ~SlowThreads();
    SlowThreads(const SlowThreads&) = delete;

    /// The worker of a user; its thread ends with the last pointer to it. nullptr: too many users have one, or no thread could be
    /// started. Conductor only.
    std::shared_ptr<mem::SlowWorker> of(uint32_t user);
    /// Threads that run, hanging ones among them.
    size_t threads() const;
    /// Waits until all submitted requests are served, or `limit_ms` are over. Returns true if they are.
    bool drain(int limit_ms) const;

private:
    struct Shared;
    class Worker;
    std::shared_ptr<Shared> shared_;
    std::map<uint32_t, std::weak_ptr<mem::SlowWorker>> workers_;  ///< by user; some have ended
};

}  // namespace roci::rocid
