#include <ctime>

#include "lcore_loop.hpp"

namespace roci::pmd {
/// An awake lcore answers within a microsecond. A sleeping lcore, or one that waits for a CPU, takes longer than a short sleep of
/// the caller.
void CommandMailbox::wait_a_little(uint32_t& yields) {
    using enum abi::CpuPace::Way;
    constexpr uint32_t kYields = 50;
    constexpr timespec kNap{0, 20'000};
    const abi::CpuPace::Way way = pace_.in_vain();
    if (way == look_again) return cpu_relax();
    if (way == yield && ++yields <= kYields) return abi::yield_cpu(pace_);
    nanosleep(&kNap, nullptr);
}

void CommandMailbox::wait_empty() {
    for (uint32_t yields = 0; slot_.load(std::memory_order_acquire) != nullptr;) wait_a_little(yields);
}

void CommandMailbox::begin(engine::Command& c, WakeFlag& lcore) {
    wait_empty();
    slot_.store(&c, std::memory_order_release);
    lcore.notify();
}

void CommandMailbox::finish(engine::Command& c) {
    wait_empty();
    c.done.store(true, std::memory_order_release);
}

void CommandMailbox::post(const io::GsiSend& send, WakeFlag& lcore) {
    wait_empty();
    datagram_ = send;
    posted_.kind = engine::Command::Kind::send_gsi;
    posted_.gsi = &datagram_;
    slot_.store(&posted_, std::memory_order_release);
    lcore.notify();
}

}  // namespace roci::pmd
