// What the adaptive policy adds to delay: a notification makes the window smaller by a share that follows how often notifications
// come (as the DCTCP of RFC 8257 does with marks). A network that marks holds its queues near its threshold; where the target of
// the delay is reached before, nothing is marked.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint32_t kShift = 4;                 ///< alpha moves by one part of 2^kShift per interval
constexpr uint32_t kShortest = 10'000;         ///< ns: an interval at least
constexpr uint32_t kForgotten = 16 << kShift;  ///< intervals after which alpha is zero

/// Intervals without a notification.
void relax(State& s, uint32_t intervals) {
    if (intervals >= kForgotten) s.alpha = 0;
    for (uint32_t n = 0; s.alpha != 0 && n < intervals; ++n) s.alpha -= (s.alpha >> kShift) + 1;
}

}  // namespace

void notified_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    const uint32_t interval = std::max(uint32_t(l.notify_every), kShortest);
    const uint32_t since = uint32_t(now) - s.raised_at;
    if (since < interval / 2) return;  // faster than any peer may notify
    s.raised_at = uint32_t(now);
    if (s.slow_start) {
        s.alpha = kWhole;
    } else {
        relax(s, since / interval);
        s.alpha += (kWhole - s.alpha) >> kShift;
    }
    if (uint32_t(now) - s.cut_at < round_trip) return;
    cut_delay(c, s, now, uint32_t(c.window - uint64_t{c.window} * s.alpha / kWhole / 2));
}

}  // namespace roci::cc
