// The policies of congestion control, one row per policy, and the additional functions of the adaptive policy. It works by delay
// until the peer reports congestion, then by notifications until the rate limit is removed.
#include <bit>

#include "cc/policies.hpp"

namespace roci::cc {
namespace {

bool by_rate(const State& s) { return s.rate != 0; }

uint32_t begin_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t quantum) {
    return by_rate(s) ? begin_dcqcn(c, s, l, now, quantum) : begin_delay(c, s, l, now, quantum);
}
void sent_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t bytes) {
    by_rate(s) ? sent_dcqcn(c, s, l, now, bytes) : sent_delay(c, s, l, now, bytes);
}
void acked_adaptive(Controller& c, State& s, const Limits& l, const Acked& a) {
    by_rate(s) ? acked_dcqcn(c, s, l, a) : acked_delay(c, s, l, a);
}
void lost_adaptive(Controller& c, State& s, const Limits& l, Nanos now, uint32_t round_trip) {
    if (!by_rate(s)) lost_delay(c, s, l, now, round_trip);
}
void silent_adaptive(Controller& c, State& s, const Limits& l, Nanos now) {
    by_rate(s) ? silent_dcqcn(c, s, l, now) : silent_delay(c, s, l, now);
}

}  // namespace

constexpr Row kPolicies[size_t(Policy::count_)] = {
    {nullptr, nullptr, widen_fixed, nullptr, nullptr, narrow_fixed},                                  // fixed_window
    {begin_delay, sent_delay, acked_delay, nullptr, lost_delay, silent_delay},                        // delay
    {begin_dcqcn, sent_dcqcn, acked_dcqcn, notified_dcqcn, nullptr, silent_dcqcn},                    // dcqcn
    {begin_adaptive, sent_adaptive, acked_adaptive, notified_dcqcn, lost_adaptive, silent_adaptive},  // adaptive
};

const char* policy_name(Policy p) {
    constexpr const char* kNames[] = {"fixed", "delay", "dcqcn", "adaptive"};
    return p < Policy::count_ ? kNames[size_t(p)] : "none";
}

void start(Controller& c, State& s, const Limits& limits, Policy policy, uint32_t packet_bytes) {
    c = {.policy = policy};
    s = {.packet_shift = uint8_t(std::countr_zero(packet_bytes))};
    if (policy == Policy::fixed_window) return;
    set_window(c, limits.first_window * kFraction);
}

}  // namespace roci::cc
