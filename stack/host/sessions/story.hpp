// Creates the report of `roci why` about a QP. The functions have no side effects.
#pragma once

#include <string>
#include <vector>

#include "host/config.hpp"
#include "host/qp_facts.hpp"

namespace roci::host::sessions {

/// Returns the report about one QP: state, cause of a failure, advice, what slows the QP, and events.
std::string story_of(const QpFacts& qp, const std::string& device);
/// Compares two connected QPs. Returns one text per setting or state that prevents communication.
std::vector<std::string> mismatches(const QpFacts& a, const QpFacts& b, const DeviceConfig& device_of_a,
                                    const DeviceConfig& device_of_b);

}  // namespace roci::host::sessions
