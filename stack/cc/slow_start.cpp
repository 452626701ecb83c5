#include "cc/policies.hpp"

namespace roci::cc {
namespace {

/// ns; idle time after which the measurements of the network are out of date. A program that works has shorter pauses. A QP with
/// outstanding packets is not idle: if it sends nothing, it waits for its peer or for a CPU.
constexpr uint32_t kIdle = 1'000'000;
/// ns; kIdle of far paths, where a pause of 1 ms is short. Linux uses the same time as TCP's shortest retransmission timeout.
constexpr uint32_t kIdleFar = 200'000'000;

}  // namespace

void forget_if_idle(Controller& c, State& s, const Limits& l, const Turn& t) {
    const uint32_t pause = c.window < kFraction ? kLongestPause : 0;  // such a small window causes pauses up to kLongestPause
    if (!t.idle || uint32_t(t.now) - s.active_at < (s.far ? kIdleFar : kIdle) + pause) return;
    s.active_at = uint32_t(t.now);
    s.contended = false;
    s.vain_cuts = s.excused = 0;
    s.empty_rounds = 0;
    s.bytes = s.queue = s.queued = 0;
    s.rate = 0;  // full_window() of delay; dcqcn calls this function only without a rate
    s.last = 0;
    begin_round(s, t.now);
    if (c.window <= l.first_window * kFraction) return;
    set_window(c, l.first_window * kFraction);
    s.slow_start = true;
    s.crowded = false;
}

}  // namespace roci::cc
