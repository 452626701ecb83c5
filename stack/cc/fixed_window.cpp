// The policies of congestion control, a row each. The fixed window: many QPs that send to a slow peer share what it can take,
// instead of sending all of it again and again. A NAK does not narrow the window: a peer that answers takes packets.
#include <algorithm>

#include "cc/controller.hpp"

namespace roci::cc {
namespace {

void widen(Controller& c, const Limits& limits, Nanos, uint32_t packets) {
    if (c.window < limits.max_window) c.window = uint16_t(std::min(c.window + packets, limits.max_window));
}

void narrow(Controller& c, Nanos) { c.window = kWindowAfterTimeout; }

}  // namespace

constexpr Row kPolicies[size_t(Policy::count_)] = {
    {nullptr, widen, nullptr, nullptr, narrow},  // fixed_window
};

}  // namespace roci::cc
