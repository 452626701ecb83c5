// A worker that accesses a client's memory by address, in virtual time. The seed determines the duration of each
// access. While `stuck` is true, no access ends.
#pragma once

#include <deque>

#include "base/types.hpp"
#include "mem/slow_memory.hpp"
#include "sim/rng.hpp"

namespace roci::sim {

class SimWorker final : public mem::SlowWorker {
public:
    SimWorker(uint32_t engines, uint32_t number, uint64_t seed) : SlowWorker(engines, number), rng_(seed) {}
    void submitted() override {}

    /// Accepts the requests that engines have submitted, and executes the requests whose time has come. Returns true
    /// if there were any of either.
    bool run(Nanos now) {
        bool any = false;
        for (uint32_t e = 0; e < lanes(); ++e) {
            mem::SlowRequest* r;
            while (lane(e).requests.pop(r)) {
                const Nanos from = waiting_.empty() ? now : std::max(now, waiting_.back().due);
                waiting_.push_back({from + rng_.between(100, 20'000), e, r});
                any = true;
            }
        }
        while (!stuck && !waiting_.empty() && waiting_.front().due <= now) {
            mem::serve(*waiting_.front().request);
            lane(waiting_.front().engine).done.push(waiting_.front().request);
            waiting_.pop_front();
            any = true;
        }
        return any;
    }
    /// Executes all requests at once. Used at the end of a world.
    void finish(Nanos now) {
        stuck = false;
        run(now);
        while (!waiting_.empty()) run(waiting_.back().due);
    }
    Nanos next_deadline() const { return stuck || waiting_.empty() ? kNever : waiting_.front().due; }
    size_t waiting() const { return waiting_.size(); }

    bool stuck = false;  ///< true: accesses to the memory never end

private:
    struct Waiting {
        Nanos due;
        uint32_t engine;
        mem::SlowRequest* request;
    };
    Rng rng_;
    std::deque<Waiting> waiting_;
};

}  // namespace roci::sim
