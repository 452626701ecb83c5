// The words of `roci why`. Pure: facts in, text out.
#pragma once

#include <string>
#include <vector>

#include "host/config.hpp"
#include "host/qp_facts.hpp"

namespace roci::host::sessions {

/// The QP itself: state, cause, what to do, events.
std::string story_of(const QpFacts& qp, const std::string& device);
/// What about two ends does not fit; empty: nothing.
std::vector<std::string> mismatches(const QpFacts& a, const QpFacts& b, const DeviceConfig& device_of_a,
                                    const DeviceConfig& device_of_b);

}  // namespace roci::host::sessions
