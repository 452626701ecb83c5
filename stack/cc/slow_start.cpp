#include "cc/policies.hpp"

namespace roci::cc {
namespace {

/// Idle time after which the measurements of the network are out of date, ns. Longer than the pauses of a working program.
constexpr uint32_t kIdle = 1'000'000;

}  // namespace

void forget_if_idle(Controller& c, State& s, const Limits& l, Nanos now) {
    if (uint32_t(now) - s.active_at < kIdle) return;
    s.active_at = uint32_t(now);
    if (c.window <= l.first_window * kFraction) return;
    set_window(c, l.first_window * kFraction);
    s.slow_start = true;
    s.crowded = false;
}

}  // namespace roci::cc
