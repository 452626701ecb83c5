// The interface by which the conductor (rocid's control thread) passes commands to the engines. rocid uses one ring per lcore.
// The simulator uses such rings or executes the commands at once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/command.hpp"

namespace roci::engine {

/// Identifies a command that was submitted to an engine. An engine executes commands in the order of their tickets. Ticket 0 is
/// the ticket of a command that is done.
using Ticket = uint64_t;

/// Only the conductor's thread calls these functions.
class CommandPort {
public:
    virtual ~CommandPort() = default;
    virtual uint32_t engines() const = 0;
    /// Passes a command to an engine and returns without waiting for its execution. Waits only while the engine's ring is full.
    /// The caller must not access the objects that the command points to until wait() has returned.
    virtual Ticket submit(uint32_t engine, const Command& command) = 0;
    /// Waits until the engine has executed the command and all commands before this command. A command that the engine will
    /// never execute is refused with ESHUTDOWN.
    virtual void wait(uint32_t engine, Ticket ticket) = 0;
    /// Waits until no engine uses an entry that was cleared from the shared tables before the call. Also waits until no engine
    /// uses a CQ that had no QPs at the time of the call.
    virtual void fence_all() = 0;

    /// Submits one operation and waits until the engine has executed it. The results are in `operation`.
    template <class Operation>
    void execute(uint32_t engine, Operation& operation) {
        wait(engine, submit(engine, &operation));
    }
    /// Submits a barrier to all engines and waits until all engines have executed it.
    void barrier_all();
};

/// A group of commands. The caller submits the commands one by one and waits once for all of them. Objects that the commands
/// point to must outlive the batch.
class Batch {
public:
    explicit Batch(CommandPort& port) : port_(port), last_(port.engines()) {}
    ~Batch() { wait(); }
    Batch(const Batch&) = delete;
    void submit(uint32_t engine, const Command& command) { last_[engine] = port_.submit(engine, command); }
    /// Waits until all commands submitted so far are done.
    void wait() {
        for (uint32_t e = 0; e < last_.size(); ++e)
            if (const Ticket t = std::exchange(last_[e], 0); t != 0) port_.wait(e, t);
    }

private:
    CommandPort& port_;
    std::vector<Ticket> last_;  ///< last ticket, by engine
};

inline void CommandPort::barrier_all() {
    Batch batch(*this);
    for (uint32_t e = 0; e < engines(); ++e) batch.submit(e, Barrier{});
}

}  // namespace roci::engine
