// Data that the conductor (rocid's control thread) and an engine lcore share for commands and fences.
#pragma once

#include <cstdint>

#include "abi/cpu_pace.hpp"
#include "base/epoch.hpp"
#include "engine/command_ring.hpp"
#include "engine_loan.hpp"
#include "wake_flag.hpp"

namespace roci::pmd {

/// The lcore accesses the public data members. The conductor's thread calls the functions.
struct LcoreCommands {
    engine::CommandRing ring;
    EpochReader reader;
    EngineLoan loan;
    WakeFlag wake;

    /// Passes a command to the lcore. Returns false if the ring is full.
    bool try_submit(const engine::Command& command, engine::Ticket& ticket);
    /// Passes a command to the lcore. Waits while the ring is full.
    engine::Ticket submit(const engine::Command& command);
    /// Waits until the command has been executed, or refused because the lcore has ended.
    void wait(engine::Ticket ticket);
    /// begin_fence() and end_fence() are the two halves of a fence. The conductor first calls begin_fence() for all lcores, and
    /// then end_fence() for all lcores. begin_fence() wakes a sleeping lcore whose engine keeps references to CQs. end_fence()
    /// waits until the lcore has passed the fence.
    void begin_fence(Epoch::Number epoch);
    void end_fence(Epoch::Number epoch);

private:
    static constexpr uint32_t kLooks = 64;

    /// Waits until `done` returns true.
    template <class Done>
    void wait_until(Done&& done);
    void wait_a_little(uint32_t& yields);

    abi::CpuPace pace_{kLooks};
};

}  // namespace roci::pmd
