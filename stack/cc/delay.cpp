// Congestion control by delay. While round trips are shorter than a target, the window grows by a fraction of a packet per
// round trip. While round trips are longer than the target, the window shrinks in proportion to the excess over the target. The
// window shrinks at most once per round trip, and at most by a half. The target is a configured time and does not depend on
// when a flow began. Therefore flows that share a queue get equal windows. target() describes the exceptions. A window below
// one packet acts as a pause between packets.
// Several packets per round trip are measured, and only the shortest of these times counts. The reason is that a queue delays
// all packets, but a busy host delays only some packets. If the times of consecutive packets differ much, hosts delay packets
// at random. The target is then longer.
// If round trips stay long although the window shrinks, there are two possible reasons. Either other flows (such as TCP) fill
// the queue, or the delay is not in queues (a host has no free CPU). In both cases the QP becomes contended: long round trips
// do not shrink the window any more, until a round trip shows that the queue is short. If the queue becomes shorter without a
// cut by this QP, another flow has lost a packet and reduced its window. A contended QP then reduces its window too. Otherwise
// the QP would take the share that the other flow has given up, because a full queue seldom drops packets of both flows.
// If the queue becomes empty, the window grows by a half per round trip, but at least by half a packet, until a round trip after
// which the window is at least as large as before the last cuts. Otherwise a link whose other flows have ended, or whose packets
// were lost, would be idle for hundreds of round trips. A loss indicates congestion only if the queue is about as long as the
// longest measured queue. A shorter queue does not overflow, because the same queue has held more packets before.
// All this applies to paths whose shortest round trip is shorter than kFar. far.cpp describes the others.
#include <bit>

#include "cc/policies.hpp"

namespace roci::cc {
namespace {

constexpr uint32_t kMostLossCut = 16;  ///< largest divisor of the window for one loss while State::contended is set
constexpr uint8_t kMostVainCuts = 15;
constexpr uint8_t kMostExcuses = 3;            ///< limit of State::excused
constexpr uint8_t kLeastShift = 6;             ///< State::unit_shift for round trips up to 262 us
constexpr uint32_t kUnits = 12;                ///< a longer shortest round trip has up to 2^kUnits units
constexpr uint32_t kMostDifference = 1 << 17;  ///< ns; limit of the effect of one sample on State::jitter
constexpr uint16_t kMostMeasured = 256;        ///< largest number of samples in a round
constexpr uint32_t kLongestSwing = 240'000;    ///< ns; the time in which a link of 25 Gb/s empties the buffer of a usual switch
constexpr uint32_t kJitterShift = 3;           ///< the weight of one round trip in State::jitter and swing is 1/2^kJitterShift
constexpr uint32_t kSwings = 4;                ///< factor of State::swing in the target

/// Returns the time that is added to the target, because hosts delay packets at random. A small jitter is ignored, because bursts
/// of other flows also cause a small jitter. The added time and the factor of the jitter are limited: a flow with a wide window
/// measures a longer jitter than other flows, and without the limits this flow would take a larger share of the link.
uint32_t jitter_allowance(const State& s, const Limits& l) {
    const uint32_t base = uint32_t(l.target), jitter = uint32_t{s.jitter} << s.unit_shift, ignored = base / 10;
    return jitter <= ignored ? 0 : std::min((jitter - ignored) * 3, base / 3 * 2);
}

/// Returns the time that is added to the target, because hosts have no CPU for long times. A swing (State::swing) up to a limit
/// is ignored. A larger swing is not caused by a queue: the length of a queue near the target cannot change that much from one
/// round trip to the next.
uint32_t swing_allowance(const State& s, const Limits& l) {
    const uint32_t swing = uint32_t{s.swing} << s.unit_shift;
    const uint32_t ignored = std::max({kLongestSwing, uint32_t(l.target) * 2, uint32_t{1} << (s.unit_shift + kUnits - 5)});
    return swing <= ignored ? 0 : (swing - ignored) * kSwings;
}

/// Returns the target round trip. Narrow windows get a longer target than wide windows, so that flows that share a queue get
/// equal windows. In a network with long round trips, the target is 5/4 of the shortest measured round trip. A longer target
/// would be unfair: if a flow began while other flows filled the queue, the shortest round trip of this flow includes time in
/// the queue.
uint32_t target(const Controller& c, const State& s, const Limits& l, uint32_t shortest) {
    const uint32_t narrow = uint32_t(uint64_t{2} * l.target * kFraction / (kFraction + c.window));
    const uint32_t base = uint32_t(l.target) + narrow + jitter_allowance(s, l) + swing_allowance(s, l);
    return std::max(base, shortest + shortest / 4);
}

/// Sets the unit of the times in queues, so that 16 bits hold up to 16 times the shortest round trip. Discards the measured times
/// if the unit changes. The unit becomes smaller only if it is four times too large, so that it does not alternate.
void choose_unit(State& s, uint32_t shortest) {
    const auto shift = uint8_t(std::clamp<int>(std::bit_width(shortest) - int(kUnits), kLeastShift, 24));
    if (shift <= s.unit_shift && shift + 2 > s.unit_shift) return;
    s.unit_shift = shift;
    s.queue = s.swing = s.jitter = 0;
    longest_queue(s) = 0;
}

/// Called when round trips stay long although the window shrinks. Marks the QP as contended and restores the window that the QP
/// had before these reductions.
void contend(Controller& c, State& s) {
    s.contended = true;
    set_window(c, std::max({uint32_t{c.window}, s.before, kWindowAfterTimeout * kFraction}));
}

/// Reduces the window of a contended QP if the queue has become shorter without a cut by this QP, because another flow has
/// then probably reduced its window. A window of two packets is not reduced, because this is also the smallest window of TCP
/// (RFC 5681).
void yield_too(Controller& c, State& s, const Acked& a) {
    constexpr uint32_t kLeast = kWindowAfterTimeout * kFraction;
    if (uint32_t(a.now) - s.cut_at < 2 * a.smoothed) {  // the QP's own cut shortens the queue
        longest_queue(s) = s.queue;
        return;
    }
    if (!s.crowded || c.window <= kLeast || !is_shorter_than_before(s)) return;
    cut_delay(c, s, a.now, std::max(c.window * kYieldKeeps / kYieldOf, kLeast));
    longest_queue(s) = s.queue;
}

/// Called when the path becomes far or near. Resets the fields that the other kind of path uses differently.
void change_distance(Controller& c, State& s, Nanos now) {
    s.far = !s.far;
    s.excused = 0;
    s.empty_rounds = 0;
    s.contended = false;
    c.not_before = std::min(c.not_before, now);
}

void judge(Controller& c, State& s, const Limits& l, const Acked& a) {
    choose_unit(s, a.shortest);
    if (s.far != (a.shortest >= kFar)) change_distance(c, s, a.now);
    if (s.far) return judge_far(c, s, a);
    const uint32_t aim = target(c, s, l, a.shortest);
    const bool again = s.crowded;  // one long round trip alone does not indicate congestion
    s.crowded = a.sample > aim;
    measure_queue(s, a);
    if (s.contended) yield_too(c, s, a);
    if (a.sample > (aim + a.shortest) / 2) s.slow_start = false;
    if (!s.crowded) {
        s.vain_cuts = 0;
        if (a.sample < a.shortest + (aim - a.shortest) / 8) {  // the queue is empty
            s.contended = false;
            if (c.window < full_window(s)) s.slow_start = true;
        }
        if (full_window(s) != 0 && c.window >= full_window(s)) s.slow_start = false;
        return;
    }
    if (!again || s.contended || uint32_t(a.now) - s.cut_at < a.smoothed) return;
    if (s.vain_cuts == kMostVainCuts) return contend(c, s);
    if (s.vain_cuts++ == 0) s.before = c.window;
    const uint64_t excess = a.sample - aim;
    cut_delay(c, s, a.now, std::max(uint32_t(c.window - uint64_t{c.window} * 4 / 5 * excess / a.sample), c.window / kMostCut));
}

void measure_jitter(State& s) {
    const uint32_t mean = s.differences / s.measured >> s.unit_shift;
    s.jitter = uint16_t(s.jitter - (s.jitter >> kJitterShift) + (mean >> kJitterShift));
}

/// Collects the samples of about one round trip, then evaluates the shortest sample.
void collect(Controller& c, State& s, const Limits& l, const Acked& a) {
    if (a.sample == 0) return;
    const uint32_t difference = a.sample > s.last ? a.sample - s.last : s.last - a.sample;
    if (s.last != 0) s.differences += std::min(difference, kMostDifference);
    s.last = a.sample;
    s.best = s.measured == 0 ? a.sample : std::min(s.best, a.sample);
    ++s.measured;
    if (s.far && a.shortest != 0 && a.sample >= a.shortest) measure_queue(s, a);
    if (uint32_t(a.now) - s.round_at < a.smoothed && s.measured != kMostMeasured) return;
    if (!s.slow_start) measure_jitter(s);  // in slow start the queue itself changes fast
    Acked whole = a;
    whole.sample = s.best;
    whole.shortest = a.shortest != 0 ? std::min(a.shortest, s.best) : s.best;
    begin_round(s, a.now);
    judge(c, s, l, whole);
}

uint32_t step(const Controller& c, const State& s, const Limits& l, uint32_t packets) {
    if (s.slow_start) return packets * kFraction / 2;  // half a packet per ACK, also below one packet
    if (s.far) return step_far(c, s, packets);
    // The hosts, not queues, cause the long round trips. With small steps, the growth of the window would take hundreds of
    // round trips.
    if (swing_allowance(s, l) != 0) return packets * kFraction / 4;
    if (c.window < kFraction) return packets * kStep / 4;
    return packets * kStep * kFraction / c.window;
}

void grow(Controller& c, State& s, const Limits& l, const Acked& a) {
    if (a.packets == 0 || (s.crowded && !s.contended)) return;
    // If less than half of the window is used, the QP cannot show whether the network permits a larger window.
    if (uint64_t{a.in_flight} * 2 * kFraction < c.window) return;
    set_window(c, std::min(c.window + std::max(step(c, s, l, a.packets), 1u), l.max_window * kFraction));
}

}  // namespace

void measure_queue(State& s, const Acked& a) {
    const uint32_t delay = a.sample - a.shortest;
    s.queued = uint8_t(uint64_t{delay} * (kFraction - 1) / a.sample);
    const auto queue = uint16_t(std::min(delay >> s.unit_shift, 0xffffu));
    const uint32_t difference = queue > s.queue ? queue - s.queue : s.queue - queue;
    s.swing = uint16_t(s.swing - (s.swing >> kJitterShift) + (difference >> kJitterShift));
    s.queue = queue;
    longest_queue(s) = std::max<uint32_t>(longest_queue(s), s.queue);
}

void cut_delay(Controller& c, State& s, Nanos now, uint32_t to) {
    full_window(s) = std::max(c.window, (full_window(s) + c.window) / 2);
    set_window(c, std::max(to, kLeastWindow));
    s.cut_at = uint32_t(now);
    s.slow_start = false;
}

uint32_t begin_delay(Controller& c, State& s, const Limits& l, const Turn& t) {
    forget_if_idle(c, s, l, t);
    return s.far && t.round_trip != 0 ? burst_far(c, s, t) : t.quantum;
}

void sent_delay(Controller& c, State& s, const Limits& l, const Sent& sent) {
    s.active_at = uint32_t(sent.now);
    if (s.far && c.window >= kFraction) pace_far(c, s, l, sent);
}

void acked_delay(Controller& c, State& s, const Limits& l, const Acked& a) {
    count_sample(s, a);
    collect(c, s, l, a);
    grow(c, s, l, a);
    const uint32_t since_sent = uint32_t(a.now) - s.active_at;
    if (c.window >= kFraction) s.active_at = uint32_t(a.now);  // a smaller window counts the pause from the last packet
    if (c.window < kFraction && a.smoothed != 0) {
        const Nanos pause = std::min(Nanos{a.smoothed} * kFraction / c.window, Nanos{kLongestPause});
        c.not_before = a.now + (pause > since_sent ? pause - since_sent : 0);
    }
}

namespace {

/// Returns true if a loss probably happened by chance. This applies to each loss at a short queue. After a loss at a short queue,
/// one later loss at a long queue is also treated as chance. Each loss at a short queue reduces the stored length of the longest
/// queue, because another path may have a smaller buffer.
bool is_chance(State& s) {
    if (is_shorter_than_before(s)) {
        if (s.excused != kMostExcuses) ++s.excused;
        longest_queue(s) -= longest_queue(s) / 16;
        return true;
    }
    if (s.excused == 0) return false;
    --s.excused;
    return true;
}

}  // namespace

/// Reduces the window after a loss that did not happen by chance. Removes only the packets that were in queues, so that the link
/// stays full.
void lost_delay(Controller& c, State& s, const Limits&, Nanos now, uint32_t round_trip) {
    if (s.far) return lost_far(c, s, now, round_trip);
    if (!s.contended && is_chance(s)) return;
    if (uint32_t(now) - s.cut_at < round_trip) return;
    const uint32_t left = c.window * (kFraction - s.queued) / kFraction;
    const uint32_t least = c.window / (s.contended ? kMostLossCut : kMostCut);
    cut_delay(c, s, now, std::max(left, least));
}

void silent_delay(Controller& c, State& s, const Limits&, Nanos now) {
    if (s.far) return silent_far(c, s, now);
    set_window(c, std::min<uint32_t>(c.window, kWindowAfterTimeout * kFraction));
    s.cut_at = uint32_t(now);
    s.slow_start = false;
}

}  // namespace roci::cc
