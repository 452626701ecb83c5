// The addition of the adaptive policy to congestion control by delay. A notification shrinks the window by a share that depends
// on the frequency of notifications, as DCTCP (RFC 8257) does with marks. Switches that mark keep their queues near their
// threshold. If round trips reach the target of the delay first, no frame is marked.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint32_t kShift = 4;                 ///< alpha changes by 1/2^kShift per interval
constexpr uint32_t kShortest = 10'000;         ///< ns; shortest interval
constexpr uint32_t kForgotten = 16 << kShift;  ///< intervals after which alpha is zero

/// Returns the number of intervals without a notification.
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
