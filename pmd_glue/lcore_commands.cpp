#include "lcore_commands.hpp"

#include <cerrno>
#include <ctime>

#include "abi/relax_cpu.hpp"

namespace roci::pmd {

/// Waits between two checks of a result. An awake lcore responds within one microsecond. So the function first only pauses the
/// CPU, and later yields the CPU. An lcore that was asleep or waits for a CPU responds later, so the function then sleeps for 20
/// microseconds.
void LcoreCommands::wait_a_little(uint32_t& yields) {
    using enum abi::CpuPace::Way;
    constexpr uint32_t kYields = 50;
    constexpr timespec kNap{0, 20'000};
    const abi::CpuPace::Way way = pace_.in_vain();
    if (way == look_again) return abi::relax_cpu();
    if (way == yield && ++yields <= kYields) return abi::yield_cpu(pace_);
    nanosleep(&kNap, nullptr);
}

template <class Done>
void LcoreCommands::wait_until(Done&& done) {
    for (uint32_t yields = 0; !done();) wait_a_little(yields);
}

bool LcoreCommands::try_submit(const engine::Command& command, engine::Ticket& ticket) {
    if (!ring.push(command, ticket)) return false;
    wake.notify();
    return true;
}

engine::Ticket LcoreCommands::submit(const engine::Command& command) {
    engine::Ticket ticket = 0;
    wait_until([&] {
        if (ring.closed()) ring.refuse_all(ESHUTDOWN);
        return try_submit(command, ticket);
    });
    return ticket;
}

void LcoreCommands::wait(engine::Ticket ticket) {
    wait_until([&] {
        if (ring.closed()) ring.refuse_all(ESHUTDOWN);
        return ring.done(ticket);
    });
}

void LcoreCommands::begin_fence(Epoch::Number epoch) {
    if (!reader.passed(epoch)) wake.notify();
}

void LcoreCommands::end_fence(Epoch::Number epoch) {
    wait_until([&] { return reader.passed(epoch); });
}

}  // namespace roci::pmd
