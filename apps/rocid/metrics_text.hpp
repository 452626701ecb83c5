// Converts rocid's counters to OpenMetrics text. The functions have no side effects.
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
    std::vector<std::vector<uint64_t>> engines;  ///< per engine: the counters, then the frames by verdict
    std::string status;                          ///< JSON of rocid's control thread; empty: it did not answer in time
};

/// Maximum number of QPs with time series. metrics_text() chooses the QPs with the most sent and received bytes.
inline constexpr size_t kMostQpSeries = 32;

std::string metrics_text(const MetricsSample& sample);

}  // namespace roci::rocid
