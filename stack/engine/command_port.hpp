// The interface by which the conductor reaches the engines. rocid passes commands through a ring per lcore; the simulator
// does the same, or executes them at once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/command.hpp"

namespace roci::engine {

/// Identifies a submitted command at its engine. Commands of one engine are done in the order of their tickets; 0 is done.
using Ticket = uint64_t;

/// Called by the conductor's thread only.
class CommandPort {
public:
    virtual ~CommandPort() = default;
    virtual uint32_t engines() const = 0;
    /// Passes a command to an engine and returns without waiting for it, or for anything else unless the engine is many commands
    /// behind. What the command points to belongs to the engine until wait() has returned.
    virtual Ticket submit(uint32_t engine, const Command& command) = 0;
    /// Returns when the engine has executed the command and all before it. A command that the engine will never execute is
    /// refused (ESHUTDOWN).
    virtual void wait(uint32_t engine, Ticket ticket) = 0;
    /// After it returns, no engine uses an entry that was cleared from the shared tables before the call, nor a CQ that had no
    /// QPs.
    virtual void fence_all() = 0;

    /// Submits one operation and waits for it. Its results are in `operation`.
    template <class Operation>
    void execute(uint32_t engine, Operation& operation) {
        wait(engine, submit(engine, &operation));
    }
    /// All engines execute a barrier; returns when all have.
    void barrier_all();
};

/// Commands that are submitted one by one and waited for together. What they point to must outlive the batch.
class Batch {
public:
    explicit Batch(CommandPort& port) : port_(port), last_(port.engines()) {}
    ~Batch() { wait(); }
    Batch(const Batch&) = delete;
    void submit(uint32_t engine, const Command& command) { last_[engine] = port_.submit(engine, command); }
    /// Returns when all commands submitted so far are done.
    void wait() {
        for (uint32_t e = 0; e < last_.size(); ++e)
            if (const Ticket t = std::exchange(last_[e], 0); t != 0) port_.wait(e, t);
    }

private:
    CommandPort& port_;
    std::vector<Ticket> last_;  ///< by engine
};

inline void CommandPort::barrier_all() {
    Batch batch(*this);
    for (uint32_t e = 0; e < engines(); ++e) batch.submit(e, Barrier{});
}

}  // namespace roci::engine
