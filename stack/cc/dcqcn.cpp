// The reaction point of DCQCN (Zhu et al., SIGCOMM 2015). A congestion notification cuts the rate. The more frequent the
// notifications are, the larger each cut is. Afterwards both time and sent bytes raise the rate. The first raises bring the
// rate back to its previous value. Then the rate grows by small steps and later by large steps. No timer is needed, because
// raises by time are computed when the QP sends or receives an acknowledgement or a notification. There is no rate limit before
// the first notification. While there is no rate limit, the window starts small and grows by a half per round trip.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint8_t kFastRaises = 5, kMostRaises = 63;
constexpr uint32_t kLeastRate = 1'000;     ///< bytes per millisecond
constexpr uint32_t kNoLimit = 12'500'000;  ///< bytes per millisecond (100 Gb/s); from this rate on, there is no rate limit
constexpr uint32_t kMostIdleRaises = 200;  ///< number of raises without traffic after which there is no rate limit
constexpr uint32_t kBurst = 8192;          ///< bytes that a QP may send at once after a pause

void raise(State& s, const Limits& l) {
    const uint8_t least = std::min<uint8_t>(s.raises_by_time, s.raises_by_bytes);
    const uint8_t most = std::max<uint8_t>(s.raises_by_time, s.raises_by_bytes);
    if (most > kFastRaises) s.before += least > kFastRaises ? l.hyper : l.additive;
    s.rate = s.rate / 2 + s.before / 2;
    if (s.rate >= kNoLimit) s.rate = 0;
}

/// Computes the raises that have become due by time since the last call.
void catch_up(State& s, const Limits& l, Nanos now) {
    for (uint32_t n = 0; s.rate != 0 && uint32_t(now) - s.raised_at >= l.raise_every; ++n) {
        s.raised_at += uint32_t(l.raise_every);
        if (n == kMostIdleRaises) s.rate = 0;
        s.alpha -= s.alpha / l.gain;
        if (s.raises_by_time < kMostRaises) ++s.raises_by_time;
        if (s.rate != 0) raise(s, l);
    }
}

/// Sets the window to twice the product of rate and round trip, so that the QP soon stops sending if no ACKs arrive.
void follow_rate(Controller& c, State& s, const Limits& l, uint32_t round_trip) {
    if (s.rate == 0 || round_trip == 0) return;
    const uint64_t packets = uint64_t{s.rate} * 2 * round_trip / 1'000'000 / (1u << s.packet_shift) + 2;
    set_window(c, uint32_t(std::min<uint64_t>(packets, l.max_window)) * kFraction);
}

}  // namespace

uint32_t begin_dcqcn(Controller& c, State& s, const Limits& l, const Turn& t) {
    if (s.rate == 0) return forget_if_idle(c, s, l, t), t.quantum;
    catch_up(s, l, t.now);
    return s.rate == 0 ? t.quantum : 1;
}

void sent_dcqcn(Controller& c, State& s, const Limits& l, const Sent& sent) {
    s.active_at = uint32_t(sent.now);
    if (s.rate == 0) return;
    const Nanos allowance = Nanos{kBurst} * 1'000'000 / s.rate;
    c.not_before =
        std::max(c.not_before, sent.now > allowance ? sent.now - allowance : 0) + Nanos{sent.bytes} * 1'000'000 / s.rate;
    s.bytes += sent.bytes;
    if (s.bytes < l.raise_bytes) return;
    s.bytes = 0;
    if (s.raises_by_bytes < kMostRaises) ++s.raises_by_bytes;
    raise(s, l);
}

void acked_dcqcn(Controller& c, State& s, const Limits& l, const Acked& a) {
    s.active_at = uint32_t(a.now);
    count_sample(s, a);
    if (s.rate != 0) {
        catch_up(s, l, a.now);
        return follow_rate(c, s, l, a.smoothed);
    }
    if (uint64_t{a.in_flight} * 2 * kFraction < c.window) return;
    set_window(c, std::min(c.window + a.packets * kFraction / 2, l.max_window * kFraction));
}

void notified_dcqcn(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (s.rate == 0) {
        const uint64_t now_sent = (uint64_t{c.window} << s.packet_shift) / kFraction * 1'000'000 / std::max(round_trip, 10'000u);
        s.rate = uint32_t(std::clamp<uint64_t>(now_sent, kLeastRate, kNoLimit - 1));
        s.alpha = 2 * kWhole / l.first_cut;
        s.slow_start = false;
    } else {
        // Ignores a notification that arrives within half of notify_every after the last cut, because the peer sends only one
        // notification per notify_every. Also ignores a notification that arrives within one round trip after the last cut,
        // because the cut cannot have shortened a queue yet.
        if (uint32_t(now) - s.cut_at < std::max(uint32_t(l.notify_every / 2), round_trip)) return;
        catch_up(s, l, now);
        if (s.rate == 0) return;
    }
    s.before = s.rate;
    s.rate = std::max(s.rate - uint32_t(uint64_t{s.rate} * s.alpha / kWhole / 2), kLeastRate);
    s.alpha += (kWhole - s.alpha) / l.gain;
    s.raises_by_time = s.raises_by_bytes = 0;
    s.bytes = 0;
    s.cut_at = s.raised_at = uint32_t(now);
    follow_rate(c, s, l, round_trip);
}

void silent_dcqcn(Controller& c, State& s, const Limits& l, Nanos now) {
    if (s.rate != 0) notified_dcqcn(c, s, l, now, 0);
    set_window(c, kWindowAfterTimeout * kFraction);
}

}  // namespace roci::cc
