// The policies of congestion control, one row per policy.
#include <bit>

#include "cc/policies.hpp"

namespace roci::cc {
constexpr Row kPolicies[size_t(Policy::count_)] = {
    {nullptr, nullptr, widen_fixed, nullptr, nullptr, narrow_fixed},                      // fixed_window
    {begin_delay, sent_delay, acked_delay, nullptr, lost_delay, silent_delay},            // delay
    {begin_dcqcn, sent_dcqcn, acked_dcqcn, notified_dcqcn, nullptr, silent_dcqcn},        // dcqcn
    {begin_delay, sent_delay, acked_delay, notified_adaptive, lost_delay, silent_delay},  // adaptive
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
