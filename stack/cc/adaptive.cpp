// The adaptive policy controls congestion by delay (delay.cpp) and by congestion notifications (CNPs). A notification reduces
// the window by a fraction that grows with the frequency of notifications, as in DCTCP (RFC 8257). If round trips reach the
// target of the delay policy before a switch marks frames, only the delay limits the window.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint32_t kShift = 4;                 ///< the weight of one interval in alpha is 1/2^kShift
constexpr uint32_t kShortest = 10'000;         ///< ns; lower limit of the interval between notifications
constexpr uint32_t kForgotten = 16 << kShift;  ///< number of intervals without a notification after which alpha is zero

/// Reduces alpha after `intervals` notification intervals in which no notification arrived.
void relax(State& s, uint32_t intervals) {
    if (intervals >= kForgotten) s.alpha = 0;
    for (uint32_t n = 0; s.alpha != 0 && n < intervals; ++n) s.alpha -= (s.alpha >> kShift) + 1;
}

}  // namespace

void notified_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    const uint32_t interval = std::max(uint32_t(l.notify_every), kShortest);
    const uint32_t since = uint32_t(now) - s.raised_at;
    if (since < interval / 2) return;  // too early: the peer sends notifications at intervals of about `interval`
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
