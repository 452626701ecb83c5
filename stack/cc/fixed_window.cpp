// The policy fixed_window. The window is small after a timeout, so that many QPs that send to one slow peer share the capacity
// of the peer. With full windows, the QPs would repeat the same packets many times. A NAK does not reduce the window, because a
// peer that sends a NAK can receive packets.
#include "cc/policies.hpp"

namespace roci::cc {

void widen_fixed(Controller& c, State&, const Limits& l, const Acked& a) {
    const uint32_t whole = l.max_window * kFraction;
    if (c.window < whole) set_window(c, std::min(c.window + a.packets * kFraction, whole));
}

void narrow_fixed(Controller& c, State&, const Limits&, Nanos) { set_window(c, kWindowAfterTimeout * kFraction); }

}  // namespace roci::cc
