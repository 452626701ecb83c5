// Congestion control of a QP. A controller limits the number of unacknowledged packets of the QP and sets the earliest time of
// the next request. A controller is plain data. The policy selects the functions that work on the controller. The code of this
// folder does not depend on queues, frames or timers.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace roci::cc {

enum class Policy : uint8_t {
    fixed_window,  ///< the maximum window; after a timeout a small window, which doubles per round trip
    delay,         ///< a window that keeps the round trip near a target
    dcqcn,         ///< a rate that congestion notifications reduce; time and sent bytes raise the rate again
    adaptive,      ///< like delay; notifications reduce the window, too
    count_,
};
const char* policy_name(Policy p);

/// Limits and parameters of the policies. apps/rocid/options.cpp describes the configurable parameters.
struct Limits {
    uint32_t max_window = 256;          ///< packets
    uint32_t first_window = 2;          ///< packets; window of a QP that is new or was idle, except with fixed_window
    Nanos target = 30'000;              ///< delay: target round trip of a wide window (target() in delay.cpp)
    Nanos notify_every = 50'000;        ///< shortest time between two notifications that a QP sends; 0: no notifications
    Nanos raise_every = 55'000;         ///< dcqcn: time between two raises by time
    uint64_t raise_bytes = 10'000'000;  ///< dcqcn: bytes sent between two raises by bytes
    uint32_t gain = 256;                ///< dcqcn: the weight of one update in alpha is 1/gain
    uint32_t first_cut = 2;             ///< dcqcn: the first notification cuts the rate by 1/first_cut
    uint32_t additive = 5'000;          ///< dcqcn: size of a small raise, bytes per millisecond
    uint32_t hyper = 50'000;            ///< dcqcn: size of a large raise, bytes per millisecond
};

/// The window after a timeout, in packets. Each of the two packets carries an ACK request. With one packet, the loss of its ACK
/// would cost another retry.
inline constexpr uint16_t kWindowAfterTimeout = 2;
inline constexpr uint32_t kFraction = 256;  ///< Controller::window counts packets in units of 1/kFraction
inline constexpr uint32_t kFullWindow = 0xffff * kFraction;

struct Controller {
    Nanos not_before = 0;                ///< earliest time of the next request
    uint32_t window : 24 = kFullWindow;  ///< packets * kFraction; no effect above Limits::max_window; may be below one packet
    Policy policy : 8 = Policy::fixed_window;
};
static_assert(sizeof(Controller) == 16);

/// The state of the policies except fixed_window, and of the notifications that a QP sends.
struct State {
    static constexpr uint8_t kFewSamples = 8;  ///< a QP with fewer samples counts as new
    uint32_t rate = 0;                         ///< dcqcn: bytes per millisecond; 0: no limit. delay: see full_window()
    uint32_t before = 0;     ///< dcqcn: the rate to which raises return; delay: the window before the first of `vain_cuts`
    uint32_t alpha = 0;      ///< estimate of the congestion from notifications, in units of 1/kWhole
    uint32_t cut_at = 0;     ///< low bits of the time when the window or the rate was last reduced
    uint32_t raised_at = 0;  ///< low bits of the time of the last raise by time (dcqcn) or of the last notification (adaptive)
    uint32_t bytes = 0;  ///< dcqcn: bytes sent since the last cut or raise by bytes; delay: longest `queue`, see longest_queue()
    uint32_t active_at = 0;     ///< low bits of the time when the QP last sent or received an acknowledgement
    uint32_t notified_at = 0;   ///< low bits of the time when this end last sent a notification
    uint32_t last = 0;          ///< delay: last round trip measured, ns; 0 if none was measured since the QP was idle
    uint32_t best = 0;          ///< delay: shortest round trip measured since `round_at`, ns
    uint32_t differences = 0;   ///< delay: sum of the differences of consecutive round trips since `round_at`, ns
    uint32_t round_at = 0;      ///< delay: low bits of the time when the current round began
    uint16_t measured = 0;      ///< delay: number of round trips measured since `round_at`
    uint16_t jitter = 0;        ///< delay: mean difference of consecutive round trips, in units of 2^unit_shift ns
    uint8_t packet_shift = 12;  ///< a full packet has 2^packet_shift bytes
    uint8_t raises_by_time = 0, raises_by_bytes = 0;
    uint8_t queued = 0;         ///< delay: the part of the last round trip that was spent in queues, in units of 1/kFraction
    uint8_t samples : 4 = 0;    ///< round trips measured, at most kFewSamples
    uint8_t vain_cuts : 4 = 0;  ///< delay: number of cuts since the last round trip below the target
    uint8_t excused : 4 = 0;  ///< delay: number of further losses that do not reduce the window; on a far path, of losses in this
                              ///< round that did not
    bool slow_start : 1 = true;
    bool crowded : 1 = false;          ///< delay: the last round trip was longer than the target
    bool contended : 1 = false;        ///< delay: cuts do not shorten round trips, so long round trips do not reduce the window
    bool far : 1 = false;              ///< delay: the shortest round trip is long (far.cpp)
    uint8_t unit_shift = 6;            ///< delay: log2 of the unit of `queue`, `swing`, `jitter` and the longest queue, ns
    uint8_t empty_rounds : 7 = 0;      ///< delay: number of consecutive round trips with an empty queue, on a far path
    bool waits_for_window : 1 = true;  ///< delay: the last turn has filled the window, on a far path
    uint16_t queue = 0;                ///< delay: time that the last round trip spent in queues, in units of 2^unit_shift ns
    uint16_t swing = 0;                ///< delay: mean difference of consecutive values of `queue`
};
static_assert(sizeof(State) == 64);

/// Sets the controller and the state of a QP to their initial values for this policy.
void start(Controller& c, State& s, const Limits& limits, Policy policy, uint32_t packet_bytes);

/// Returns the window in whole packets, at least one.
inline uint32_t packets(const Controller& c) { return c.window < kFraction ? 1 : c.window / kFraction; }
/// Returns the number of packets that the controller permits to be unacknowledged.
inline uint32_t window(const Controller& c, const Limits& limits) {
    const uint32_t allowed = packets(c);
    return allowed < limits.max_window ? allowed : limits.max_window;
}
inline Nanos not_before(const Controller& c) { return c.not_before; }
/// Returns the rate that dcqcn permits, in bytes per millisecond. 0: no limit.
inline uint32_t rate(const Controller& c, const State& s) { return c.policy == Policy::dcqcn ? s.rate : 0; }

/// The argument of on_ack().
struct Acked {
    Nanos now;
    uint32_t packets;
    uint32_t in_flight;  ///< packets in flight before this acknowledgement
    uint32_t sample;     ///< round trip measured with this acknowledgement, ns; 0 if none was measured
    uint32_t smoothed, shortest;
};

/// The argument of begin_turn().
struct Turn {
    Nanos now;
    uint32_t quantum;     ///< number of frames that the requester may send without congestion control
    bool idle;            ///< no packet is outstanding
    uint32_t round_trip;  ///< smoothed round trip, ns; 0 if unknown
};

/// The argument of on_sent().
struct Sent {
    Nanos now;
    uint32_t packets, bytes;
    uint32_t round_trip;  ///< smoothed round trip, ns; 0 if unknown
    bool repairs;         ///< a lost packet is not acknowledged yet
    bool fills;           ///< the window is full
};

/// Returns the number of responses that the next READ request covers. `rest` responses to the READ were not requested yet, and
/// the QP may have `reads` outstanding READ requests. On a far path (far.cpp), `reads` requests of this size fill the window: the
/// peer sends all responses to a request at once, so larger requests would cause longer bursts. The same applies until the QP has
/// measured a round trip. On other paths, and with other policies, the request covers all `rest` responses.
uint32_t read_part(const Controller& c, const State& s, const Limits& l, uint32_t reads, uint32_t rest);

/// The functions of a policy, one per event; nullptr if the policy ignores the event.
struct Row {
    /// Called when a turn of the requester begins (qp/run_queue.hpp). Returns how many frames the requester may send.
    uint32_t (*begin_turn)(Controller&, State&, const Limits&, const Turn&);
    void (*on_sent)(Controller&, State&, const Limits&, const Sent&);
    void (*on_ack)(Controller&, State&, const Limits&, const Acked&);
    void (*on_cnp)(Controller&, State&, const Limits&, Nanos now, uint32_t round_trip);
    void (*on_loss)(Controller&, State&, const Limits&, Nanos now, uint32_t round_trip);
    void (*on_timeout)(Controller&, State&, const Limits&, Nanos now);
};
extern const Row kPolicies[];
inline const Row& row(const Controller& c) { return kPolicies[size_t(c.policy)]; }

/// Returns true for the policy fixed_window, which neither delays requests nor counts bytes.
inline bool rests(const Controller& c) { return c.policy == Policy::fixed_window; }
/// Returns true for a fixed window at its maximum. Only a timeout changes such a window.
inline bool rests_open(const Controller& c, const Limits& l) { return rests(c) && c.window >= l.max_window * kFraction; }

inline uint32_t begin_turn(Controller& c, State& s, const Limits& l, const Turn& t) {
    if (rests(c)) [[likely]]
        return t.quantum;
    const auto f = row(c).begin_turn;
    return f != nullptr ? f(c, s, l, t) : t.quantum;
}
/// Records what the requester sent in one turn.
inline void on_sent(Controller& c, State& s, const Limits& l, const Sent& sent) {
    if (rests(c)) [[likely]]
        return;
    if (const auto f = row(c).on_sent) f(c, s, l, sent);
}
inline void on_ack(Controller& c, State& s, const Limits& l, const Acked& a) {
    if (const auto f = row(c).on_ack) f(c, s, l, a);
}
/// Processes a notification of the peer (RoCEv2 annex A17.9). `round_trip` is the smoothed round trip in ns, 0 if unknown.
inline void on_cnp(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (const auto f = row(c).on_cnp) f(c, s, l, now, round_trip);
}
/// Processes a loss: a request that the peer reported as missing, or a response that did not arrive.
inline void on_loss(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (const auto f = row(c).on_loss) f(c, s, l, now, round_trip);
}
/// Called when the ACK timeout elapsed without a response, or when two consecutive probes remained unanswered.
inline void on_timeout(Controller& c, State& s, const Limits& l, Nanos now) {
    if (const auto f = row(c).on_timeout) f(c, s, l, now);
}

/// Called when the QP received a frame with the mark Congestion Experienced. Returns true if the QP must send a notification to
/// its peer now.
inline bool take_mark(State& s, const Limits& l, Nanos now) {
    if (l.notify_every == 0 || uint32_t(now) - s.notified_at < l.notify_every) return false;
    s.notified_at = uint32_t(now);
    return true;
}

}  // namespace roci::cc
