// The fixed window: many QPs that send to a slow peer share what it can take, instead of sending all of it again and again. A NAK
// does not narrow the window: a peer that answers takes packets.
#include "cc/policies.hpp"

namespace roci::cc {

void widen_fixed(Controller& c, State&, const Limits& l, const Acked& a) {
    if (c.window < l.max_window) c.window = uint16_t(std::min(c.window + a.packets, l.max_window));
}

void narrow_fixed(Controller& c, State&, const Limits&, Nanos) { c.window = kWindowAfterTimeout; }

}  // namespace roci::cc
