// Congestion control of a QP: how much it may send without an acknowledgement, and not before when. A controller is plain data;
// the policy selects the functions. Nothing here knows of queues, frames or timers.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace roci::cc {

enum class Policy : uint8_t {
    fixed_window,  ///< the whole window; a small one after a timeout, from there it doubles per round trip
    delay,         ///< a window that keeps the round trip near a target
    dcqcn,         ///< a rate that congestion notifications cut and time raises again
    adaptive,      ///< by delay; notifications make the window smaller, too
    count_,
};
const char* policy_name(Policy p);

/// What the configuration allows. The reasons for each value are in apps/rocid/options.cpp.
struct Limits {
    uint32_t max_window = 256;          ///< packets
    uint32_t first_window = 2;          ///< packets: of a QP that knows nothing of the network yet
    Nanos target = 30'000;              ///< delay: target round trip; at least 5/4 of the shortest measured one
    Nanos notify_every = 50'000;        ///< shortest time between two notifications of a QP; 0: none is sent
    Nanos raise_every = 55'000;         ///< dcqcn: time between two raises
    uint64_t raise_bytes = 10'000'000;  ///< dcqcn: bytes between two raises
    uint32_t gain = 256;                ///< dcqcn: alpha moves by one part of this
    uint32_t first_cut = 2;             ///< dcqcn: the first notification cuts the rate by one part of this
    uint32_t additive = 5'000;          ///< dcqcn: kB/s, bytes per millisecond
    uint32_t hyper = 50'000;            ///< dcqcn: likewise, after a long time without notifications
};

/// After a timeout: two packets, each with an ACK request. With one, a lost ACK would cost a retry as often as a lost request.
inline constexpr uint16_t kWindowAfterTimeout = 2;
inline constexpr uint32_t kFraction = 256;  ///< of a packet: Controller::window
inline constexpr uint32_t kFullWindow = 0xffff * kFraction;

struct Controller {
    Nanos not_before = 0;                ///< the next request
    uint32_t window : 24 = kFullWindow;  ///< packets * kFraction, if less than Limits::max_window: may be less than one packet
    Policy policy : 8 = Policy::fixed_window;
};
static_assert(sizeof(Controller) == 16);

/// What policies that adapt remember. The fixed window does not touch it.
struct State {
    static constexpr uint8_t kFewSamples = 8;  ///< with fewer, a QP has just begun
    uint32_t rate = 0;                         ///< dcqcn: bytes per millisecond; 0: no limit
    uint32_t before = 0;                       ///< the rate before it was cut; delay: the window before the cuts in vain
    uint32_t alpha = 0;                        ///< how congested, judged by notifications, of kWhole
    uint32_t cut_at = 0;                       ///< low bits of the time when the window or rate was made smaller
    uint32_t raised_at = 0;                    ///< dcqcn: likewise, of the last raise by time; adaptive: of the last notification
    uint32_t bytes = 0;                        ///< dcqcn: sent since the last raise by bytes
    uint32_t active_at = 0;                    ///< low bits of the time when something was sent or acknowledged
    uint32_t notified_at = 0;                  ///< low bits of the time when this end sent a notification
    uint8_t packet_shift = 12;                 ///< a full packet has 2^packet_shift bytes
    uint8_t raises_by_time = 0, raises_by_bytes = 0;
    uint8_t queued = 0;           ///< delay: the part of the last round trip that was spent in queues, of kFraction
    uint8_t samples : 4 = 0;      ///< round trips measured, at most kFewSamples
    uint8_t vain_cuts : 4 = 0;    ///< delay: in a row, round trips always longer than the target
    uint8_t calm_losses : 2 = 0;  ///< delay: in a row, while round trips were shorter than the target
    bool slow_start : 1 = true;
    bool crowded : 1 = false;    ///< delay: the last round trip was longer than the target
    bool contended : 1 = false;  ///< delay: others keep the queue full; long round trips change nothing
};
static_assert(sizeof(State) == 40);

/// A QP's congestion control starts anew.
void start(Controller& c, State& s, const Limits& limits, Policy policy, uint32_t packet_bytes);

/// What the window allows, in packets: one at least.
inline uint32_t packets(const Controller& c) { return c.window < kFraction ? 1 : c.window / kFraction; }
/// Packets that may be unacknowledged.
inline uint32_t window(const Controller& c, const Limits& limits) {
    const uint32_t allowed = packets(c);
    return allowed < limits.max_window ? allowed : limits.max_window;
}
inline Nanos not_before(const Controller& c) { return c.not_before; }

/// Packets were acknowledged.
struct Acked {
    Nanos now;
    uint32_t packets;
    uint32_t in_flight;  ///< before
    uint32_t sample;     ///< a round trip that was measured just now, ns; 0: none
    uint32_t smoothed, shortest;
};

/// A policy's reaction to each event; nullptr: none.
struct Row {
    /// A turn of the requester begins. Returns how many of `quantum` frames it may send.
    uint32_t (*begin_turn)(Controller&, State&, const Limits&, Nanos now, uint32_t quantum);
    void (*on_sent)(Controller&, State&, const Limits&, Nanos now, uint32_t bytes);
    void (*on_ack)(Controller&, State&, const Limits&, const Acked&);
    void (*on_cnp)(Controller&, State&, const Limits&, Nanos now, uint32_t round_trip);
    void (*on_loss)(Controller&, State&, const Limits&, Nanos now, uint32_t round_trip);
    void (*on_timeout)(Controller&, State&, const Limits&, Nanos now);
};
extern const Row kPolicies[];
inline const Row& row(const Controller& c) { return kPolicies[size_t(c.policy)]; }

/// The fixed window neither paces nor counts bytes.
inline bool rests(const Controller& c) { return c.policy == Policy::fixed_window; }
/// No event but a timeout changes an open fixed window.
inline bool rests_open(const Controller& c, const Limits& l) { return rests(c) && c.window >= l.max_window * kFraction; }

inline uint32_t begin_turn(Controller& c, State& s, const Limits& l, Nanos now, uint32_t quantum) {
    if (rests(c)) [[likely]]
        return quantum;
    const auto f = row(c).begin_turn;
    return f != nullptr ? f(c, s, l, now, quantum) : quantum;
}
/// The requester sent `bytes` in one turn.
inline void on_sent(Controller& c, State& s, const Limits& l, Nanos now, uint32_t bytes) {
    if (rests(c)) [[likely]]
        return;
    if (const auto f = row(c).on_sent) f(c, s, l, now, bytes);
}
inline void on_ack(Controller& c, State& s, const Limits& l, const Acked& a) {
    if (const auto f = row(c).on_ack) f(c, s, l, a);
}
/// The peer reported a congestion (RoCEv2 annex A17.9). `round_trip`: smoothed; 0: not known.
inline void on_cnp(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (const auto f = row(c).on_cnp) f(c, s, l, now, round_trip);
}
/// A packet was lost, and the peer reported it.
inline void on_loss(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (const auto f = row(c).on_loss) f(c, s, l, now, round_trip);
}
/// The peer was silent for the whole ACK timeout, or probes were in vain.
inline void on_timeout(Controller& c, State& s, const Limits& l, Nanos now) {
    if (const auto f = row(c).on_timeout) f(c, s, l, now);
}

/// The other end's part: a frame of its peer was marked Congestion Experienced. True: notify it now.
inline bool take_mark(State& s, const Limits& l, Nanos now) {
    if (l.notify_every == 0 || uint32_t(now) - s.notified_at < l.notify_every) return false;
    s.notified_at = uint32_t(now);
    return true;
}

}  // namespace roci::cc
