// The delay policy on far paths, whose shortest round trip is at least kFar. Hosts and other flows delay packets there by more
// than a target that is near the shortest round trip. Therefore long round trips do not reduce the window. Losses, timeouts and
// (policy adaptive) notifications reduce it. The window grows and shrinks as the window of TCP (RFC 5681, RFC 9438 4.3), so that
// both get similar shares of a link.
//
// The packets of a window are spread over the round trip. Otherwise they leave in bursts, because an acknowledgement after a loss
// acknowledges many packets at once, and a queue that is shorter than such a burst drops a part of it. While a lost packet is not
// acknowledged, no acknowledgements limit the rate of new packets. The requester then sends one window of them per round trip.
// If further requests are posted, repairs are sent at once. Each repair delays the packets after it.
#include "cc/policies.hpp"

namespace roci::cc {
namespace {

/// A timely turn sends what the window permits in this time (ns) or in 1/16 of a round trip.
constexpr Nanos kLongestBurst = 250'000;
constexpr uint32_t kLeastBurst = 2;   ///< packets
constexpr uint32_t kQuarters = 4;     ///< the unit of pace() is 1/kQuarters
constexpr uint8_t kSteadyRounds = 8;  ///< number of rounds with an empty queue after which the growth becomes faster
constexpr uint8_t kMostEmptyRounds = 2 * kSteadyRounds;
/// One report of a loss per 2^kChanceShift packets of the window and per round trip may be chance, up to kMostChances reports.
constexpr uint32_t kChanceShift = 5, kMostChances = 15;
constexpr uint32_t kLeast = kWindowAfterTimeout * kFraction;  ///< smallest window, as with TCP

/// Returns the time in which the window permits what a timely turn sends.
Nanos burst_time(uint32_t round_trip) { return std::min<Nanos>(kLongestBurst, round_trip / 16); }

/// Returns how late a turn comes. The result has a limit, so that the burst after a long delay is limited. The limit is short if
/// the last turn filled the window, because the QP then waited for an acknowledgement and not for the CPU.
Nanos lateness(const Controller& c, const State& s, Nanos now, uint32_t round_trip) {
    const Nanos most = s.waits_for_window ? burst_time(round_trip) : round_trip / 8;
    return now <= c.not_before ? 0 : std::min<Nanos>(now - c.not_before, most);
}

/// Returns the number of windows that are sent per round trip. The rate must be higher than the rate at which acknowledgements
/// arrive, because otherwise the window could not grow. In slow start the window grows by a half per round trip.
uint32_t pace(const State& s, const Sent& sent) {
    if (sent.repairs) return kQuarters;
    return s.slow_start ? 2 * kQuarters : kQuarters + 1;
}

/// Returns true if a loss probably happened by chance, because a queue that is shorter than before does not overflow. Many
/// reports of such losses in one round trip indicate congestion all the same.
bool is_chance_far(const Controller& c, State& s) {
    if (s.slow_start || !is_shorter_than_before(s)) return false;
    if (s.excused >= std::min((packets(c) >> kChanceShift) + 1, kMostChances)) return false;
    ++s.excused;
    longest_queue(s) -= longest_queue(s) / 16;
    return true;
}

}  // namespace

/// Judges a round trip.
void judge_far(const Controller& c, State& s, const Acked& a) {
    s.crowded = false;
    s.excused = 0;
    if (a.sample >= a.shortest + a.shortest / 16) {
        s.empty_rounds = 0;
    } else if (s.empty_rounds != kMostEmptyRounds) {
        ++s.empty_rounds;
    }
    if (a.sample > a.shortest + a.shortest / 2) s.slow_start = false;
    if (full_window(s) != 0 && c.window >= full_window(s)) s.slow_start = false;
}

/// Returns the growth for `packets` acknowledged packets: half a packet per round trip. If the queue stays empty, the growth
/// becomes faster, because otherwise a link whose other flows have ended would be idle for hundreds of round trips.
uint32_t step_far(const Controller& c, const State& s, uint32_t packets) {
    const uint32_t factor = s.empty_rounds <= kSteadyRounds ? 1 : s.empty_rounds - kSteadyRounds;
    return std::max(packets * kStep * factor * kFraction / std::max<uint32_t>(c.window, kFraction), 1u);
}

/// Returns the number of packets that a turn may send. A turn that comes late sends more, because an engine that has little CPU
/// could not keep up with many small turns.
uint32_t burst_far(const Controller& c, const State& s, const Turn& t) {
    const Nanos time = burst_time(t.round_trip) + (s.waits_for_window ? 0 : lateness(c, s, t.now, t.round_trip));
    return std::min(std::max(uint32_t(packets(c) * time / t.round_trip), kLeastBurst), t.quantum);
}

uint32_t read_part(const Controller& c, const State& s, const Limits& l, uint32_t reads, uint32_t rest) {
    const bool by_delay = c.policy == Policy::delay || c.policy == Policy::adaptive;
    if (!by_delay || (!s.far && s.samples != 0)) return rest;
    const uint32_t fair = std::max((window(c, l) + reads - 1) / std::max(reads, 1u), kLeastBurst);
    const uint32_t parts = std::max((rest + fair / 2) / fair, 1u);  // of similar length, because each part needs one of `reads`
    return (rest + parts - 1) / parts;
}

/// Sets the earliest time of the next turn: at most a round trip later, because a READ may be longer than the window, and because
/// repairs do not wait for this time.
void pace_far(Controller& c, State& s, const Limits& l, const Sent& sent) {
    const Nanos round_trip = std::clamp(s.last, sent.round_trip, 2 * sent.round_trip);
    const Nanos interval = round_trip * sent.packets * kQuarters / (window(c, l) * pace(s, sent));
    const Nanos at = std::max(c.not_before, sent.now - lateness(c, s, sent.now, sent.round_trip)) + interval;
    c.not_before = std::min(at, sent.now + round_trip);
    s.waits_for_window = sent.fills;
}

/// Reduces the window after a loss that did not happen by chance. The losses of one overflow are detected for up to the longest
/// round trip, so they reduce the window only once.
void lost_far(Controller& c, State& s, Nanos now, uint32_t round_trip) {
    if (is_chance_far(c, s)) return;
    if (c.window <= kLeast || uint32_t(now) - s.cut_at < round_trip + (longest_queue(s) << s.unit_shift)) return;
    cut_delay(c, s, now, std::max(s.slow_start ? c.window / 2 : c.window * kYieldKeeps / kYieldOf, kLeast));
    full_window(s) = c.window;
    longest_queue(s) = s.queue;
}

/// Called after a timeout. The window then grows fast up to half of its size, as with TCP. A repeated timeout does not change
/// this size (RFC 5681 3.1).
void silent_far(Controller& c, State& s, Nanos now) {
    if (c.window > kLeast) full_window(s) = std::max<uint32_t>(c.window / 2, kLeast);
    set_window(c, std::min<uint32_t>(c.window, kLeast));
    s.cut_at = uint32_t(now);
    s.slow_start = true;
}

}  // namespace roci::cc
