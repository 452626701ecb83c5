// Creates the text of `roci why` from facts. The functions have no side effects.
#pragma once

#include <string>
#include <vector>

#include "host/config.hpp"
#include "host/qp_facts.hpp"

namespace roci::host::sessions {

/// Returns the description of one QP: state, cause, remedy, events.
std::string story_of(const QpFacts& qp, const std::string& device);
/// Returns one text per reason why the two ends do not fit together.
std::vector<std::string> mismatches(const QpFacts& a, const QpFacts& b, const DeviceConfig& device_of_a,
                                    const DeviceConfig& device_of_b);

}  // namespace roci::host::sessions
