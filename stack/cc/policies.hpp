// The functions of the policies, for the table in policies.cpp, and helpers that several policies share.
#pragma once

#include <algorithm>

#include "cc/controller.hpp"

namespace roci::cc {

inline constexpr uint32_t kWhole = 1 << 16;
/// The smallest window: one packet per 64 round trips.
inline constexpr uint32_t kLeastWindow = kFraction / 64;
inline constexpr uint32_t kLongestPause = 10'000'000;  ///< ns; longest pause between packets if the window is below one packet

// ---- slow_start.cpp: common functions of delay and dcqcn
/// If the QP was idle, discards its measurements, because they are out of date, and reduces a larger window to
/// Limits::first_window.
void forget_if_idle(Controller& c, State& s, const Limits& l, const Turn& t);

inline void set_window(Controller& c, uint32_t window) { c.window = std::min(window, kFullWindow) & 0xffffff; }
/// Policy delay: begins to collect the samples of another round trip.
inline void begin_round(State& s, Nanos now) {
    s.round_at = uint32_t(now);
    s.best = s.differences = 0;
    s.measured = 0;
}
inline void count_sample(State& s, const Acked& a) {
    if (a.sample != 0 && s.samples < State::kFewSamples) ++s.samples;
}

// ---- fixed_window.cpp
void widen_fixed(Controller& c, State&, const Limits& l, const Acked& a);
void narrow_fixed(Controller& c, State&, const Limits&, Nanos);

// ---- delay.cpp
inline constexpr uint32_t kFar = 1'000'000;  ///< ns; shortest round trip of a far path
/// A flow that grows by half a packet per round trip and cuts its window to 7/10 gets the same share of a link as TCP (RFC 9438
/// 4.3).
inline constexpr uint32_t kStep = kFraction / 2;
inline constexpr uint32_t kYieldKeeps = 7, kYieldOf = 10;
/// Returns the largest value of State::queue since the QP was idle or, if the QP is contended, since its last cut. Losses at a
/// shorter queue reduce this value.
inline uint32_t& longest_queue(State& s) { return s.bytes; }
/// Returns the window up to which the window grows fast: about the window before the last cuts. On a far path it is the window
/// after the last cut, or half of the window before the last timeout. 0: the window was never cut.
inline uint32_t& full_window(State& s) { return s.rate; }
inline bool is_shorter_than_before(State& s) { return s.queue < longest_queue(s) - longest_queue(s) / 4; }
/// Measures the time that a packet spent in queues.
void measure_queue(State& s, const Acked& a);
inline constexpr uint32_t kMostCut = 2;  ///< largest divisor of the window for one cut; see also kMostLossCut
/// Sets the window to `to`, but at least to kLeastWindow, and ends slow start. Remembers the window before the cut.
void cut_delay(Controller& c, State& s, Nanos now, uint32_t to);
uint32_t begin_delay(Controller& c, State& s, const Limits& l, const Turn& t);
void sent_delay(Controller& c, State& s, const Limits& l, const Sent& sent);
void acked_delay(Controller& c, State& s, const Limits& l, const Acked& a);
void lost_delay(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip);
void silent_delay(Controller& c, State& s, const Limits& l, Nanos now);

// ---- far.cpp: the events of delay on far paths, each with the arguments of the event
void judge_far(const Controller& c, State& s, const Acked& a);
uint32_t step_far(const Controller& c, const State& s, uint32_t packets);
uint32_t burst_far(const Controller& c, const State& s, const Turn& t);
void pace_far(Controller& c, State& s, const Limits& l, const Sent& sent);
void lost_far(Controller& c, State& s, Nanos now, uint32_t round_trip);
void silent_far(Controller& c, State& s, Nanos now);

// ---- adaptive.cpp
void notified_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip);

// ---- dcqcn.cpp
uint32_t begin_dcqcn(Controller& c, State& s, const Limits& l, const Turn& t);
void sent_dcqcn(Controller& c, State& s, const Limits& l, const Sent& sent);
void acked_dcqcn(Controller& c, State& s, const Limits& l, const Acked& a);
void notified_dcqcn(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip);
void silent_dcqcn(Controller& c, State& s, const Limits& l, Nanos now);

}  // namespace roci::cc
