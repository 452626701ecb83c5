// The fixed window: many QPs that send to a slow peer share what it can take, instead of sending all of it again and again. A NAK
// does not narrow the window: a peer that answers takes packets.
#include "cc/policies.hpp"

namespace roci::cc {

void widen_fixed(Controller& c, State&, const Limits& l, const Acked& a) {
    const uint32_t whole = l.max_window * kFraction;
    if (c.window < whole) set_window(c, std::min(c.window + a.packets * kFraction, whole));
}

void narrow_fixed(Controller& c, State&, const Limits&, Nanos) { set_window(c, kWindowAfterTimeout * kFraction); }

}  // namespace roci::cc
