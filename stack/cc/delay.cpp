// Congestion control by delay. While round trips are shorter than a target, the window grows by a fraction of a packet per round
// trip. Otherwise it shrinks in proportion to the excess over the target, at most once per round trip and by at most a half. The
// target is an absolute time and does not depend on when a flow began, so that flows which share a queue become equal. A window
// below one packet acts as a pause between packets.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint32_t kStep = kFraction / 2;  ///< growth of the window per round trip
constexpr Nanos kLongestPause = 10'000'000;
constexpr uint32_t kMostCut = 2;  ///< divisor of the largest reduction of the window

/// Returns the target round trip. Narrow windows get a longer target than wide ones, so that flows which share a queue become
/// equal. In a network with long round trips, the target is twice the shortest one measured.
uint32_t target(const Controller& c, const Limits& l, uint32_t shortest) {
    const auto base = uint32_t(l.target);
    return std::max(base + uint32_t(uint64_t{2} * base * kFraction / (kFraction + c.window)), 2 * shortest);
}

void cut(Controller& c, State& s, Nanos now, uint32_t to) {
    set_window(c, std::max({to, c.window / kMostCut, kLeastWindow}));
    s.cut_at = uint32_t(now);
    s.slow_start = false;
}

void judge(Controller& c, State& s, const Limits& l, const Acked& a) {
    const uint32_t aim = target(c, l, a.shortest);
    s.crowded = a.sample > aim;
    if (a.sample > (aim + a.shortest) / 2) s.slow_start = false;
    if (!s.crowded || uint32_t(a.now) - s.cut_at < a.smoothed) return;
    const uint64_t excess = a.sample - aim;
    cut(c, s, a.now, uint32_t(c.window - uint64_t{c.window} * 4 / 5 * excess / a.sample));
}

void grow(Controller& c, State& s, const Limits& l, const Acked& a) {
    // A window that is not used does not show whether a larger one is possible.
    if (s.crowded || uint64_t{a.in_flight} * 2 * kFraction < c.window) return;
    const uint32_t step = s.slow_start            ? a.packets * kFraction / 2
                          : c.window >= kFraction ? a.packets * kStep * kFraction / c.window
                                                  : a.packets * kStep / 4;
    set_window(c, std::min(c.window + std::max(step, 1u), l.max_window * kFraction));
}

}  // namespace

uint32_t begin_delay(Controller& c, State& s, const Limits& l, Nanos now, uint32_t quantum) {
    forget_if_idle(c, s, l, now);
    return quantum;
}

void sent_delay(Controller&, State& s, const Limits&, Nanos now, uint32_t) { s.active_at = uint32_t(now); }

void acked_delay(Controller& c, State& s, const Limits& l, const Acked& a) {
    count_sample(s, a);
    if (a.sample != 0) judge(c, s, l, a);
    grow(c, s, l, a);
    const uint32_t since_sent = uint32_t(a.now) - s.active_at;
    if (c.window < kFraction && a.smoothed != 0) {
        const Nanos pause = std::min(Nanos{a.smoothed} * kFraction / c.window, kLongestPause);
        c.not_before = a.now + (pause > since_sent ? pause - since_sent : 0);
    }
}

/// A loss while the queues are nearly empty does not indicate congestion, so the window stays.
void lost_delay(Controller& c, State& s, const Limits&, Nanos now, uint32_t round_trip) {
    s.slow_start = false;
    if (!s.crowded || uint32_t(now) - s.cut_at < round_trip) return;
    cut(c, s, now, c.window / kMostCut);
}

void silent_delay(Controller& c, State& s, const Limits&, Nanos now) {
    set_window(c, std::min<uint32_t>(c.window, kWindowAfterTimeout * kFraction));
    s.cut_at = uint32_t(now);
    s.slow_start = false;
}

}  // namespace roci::cc
