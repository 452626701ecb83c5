#include <ctime>

#include "lcore_loop.hpp"

namespace roci::pmd {
namespace {

/// Waits a little longer each time: an awake lcore answers within a microsecond, a shared CPU may take a time slice.
void wait_politely(uint32_t round) {
    constexpr uint32_t kSpins = 500, kYields = 50;
    constexpr long kNap = 20'000;
    if (round < kSpins) return cpu_relax();
    if (round < kSpins + kYields) {
        sched_yield();
        return;
    }
    const timespec t{0, kNap};
    nanosleep(&t, nullptr);
}

}  // namespace

void CommandMailbox::wait_empty() const {
    for (uint32_t i = 0; slot_.load(std::memory_order_acquire) != nullptr; ++i) wait_politely(i);
}

void CommandMailbox::execute(engine::Command& c, WakeFlag& lcore) {
    wait_empty();
    slot_.store(&c, std::memory_order_release);
    lcore.notify();
    wait_empty();
    c.done.store(true, std::memory_order_release);
}

void CommandMailbox::post(const engine::GsiSend& send, WakeFlag& lcore) {
    wait_empty();
    datagram_ = send;
    posted_.kind = engine::Command::Kind::send_gsi;
    posted_.gsi = &datagram_;
    slot_.store(&posted_, std::memory_order_release);
    lcore.notify();
}

}  // namespace roci::pmd
