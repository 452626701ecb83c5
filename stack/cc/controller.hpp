// Congestion control of a QP: how much it may send without an acknowledgement, and not before when. A controller is plain data;
// the policy selects the functions. Nothing here knows of queues, frames or timers.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace roci::cc {

enum class Policy : uint8_t {
    fixed_window,  ///< the whole window; a small one after a timeout, from there it doubles per round trip
    count_,
};

/// What the configuration allows.
struct Limits {
    uint32_t max_window = 256;  ///< packets
};

/// After a timeout: two packets, each with an ACK request. With one, a lost ACK would cost a retry as often as a lost request.
inline constexpr uint16_t kWindowAfterTimeout = 2;
inline constexpr uint16_t kFullWindow = 0xffff;

struct Controller {
    Nanos not_before = 0;           ///< the next request
    uint16_t window = kFullWindow;  ///< packets, if fewer than Limits::max_window
    Policy policy = Policy::fixed_window;
};
static_assert(sizeof(Controller) == 16);

/// Packets that may be unacknowledged.
inline uint32_t window(const Controller& c, const Limits& limits) {
    return c.window < limits.max_window ? c.window : limits.max_window;
}
inline Nanos not_before(const Controller& c) { return c.not_before; }

/// A policy's reaction to each event; nullptr: none.
struct Row {
    void (*on_sent)(Controller&, Nanos now, uint32_t bytes);
    void (*on_ack)(Controller&, const Limits&, Nanos now, uint32_t packets);
    void (*on_cnp)(Controller&, Nanos now);
    void (*on_loss)(Controller&, Nanos now);
    void (*on_timeout)(Controller&, Nanos now);
};
extern const Row kPolicies[];

/// A turn of the requester sent so many bytes.
inline void on_sent(Controller& c, Nanos now, uint32_t bytes) {
    if (const auto f = kPolicies[size_t(c.policy)].on_sent) f(c, now, bytes);
}
/// So many packets were acknowledged.
inline void on_ack(Controller& c, const Limits& limits, Nanos now, uint32_t packets) {
    if (const auto f = kPolicies[size_t(c.policy)].on_ack) f(c, limits, now, packets);
}
/// The peer reported a congestion (RoCEv2 annex A17.9).
inline void on_cnp(Controller& c, Nanos now) {
    if (const auto f = kPolicies[size_t(c.policy)].on_cnp) f(c, now);
}
/// A packet was lost, and the peer reported it.
inline void on_loss(Controller& c, Nanos now) {
    if (const auto f = kPolicies[size_t(c.policy)].on_loss) f(c, now);
}
/// The peer was silent for the whole ACK timeout.
inline void on_timeout(Controller& c, Nanos now) {
    if (const auto f = kPolicies[size_t(c.policy)].on_timeout) f(c, now);
}

}  // namespace roci::cc
