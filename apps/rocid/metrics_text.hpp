// rocid's counters as OpenMetrics text. The functions have no side effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace roci::rocid {

struct MetricsSample {
    struct Device {
        std::string name;
        std::vector<uint64_t> values;  ///< in the order of qp::kDeviceCounters
    };
    std::vector<Device> devices;
    std::vector<std::vector<uint64_t>> engines;  ///< counters, then frames by verdict
    std::string status;                          ///< JSON of the conductor; empty: the conductor did not answer in time
};

/// Maximum number of QPs with time series. The QPs with the most bytes are chosen.
inline constexpr size_t kMostQpSeries = 32;

std::string metrics_text(const MetricsSample& sample);

}  // namespace roci::rocid
