// rocid's counters as OpenMetrics text. Pure: a sample in, text out.
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
    std::string status;                          ///< JSON of the conductor; empty: it did not answer in time
};

/// At most so many QPs have a series each: those with the most bytes. The number of series stays bounded whatever programs do.
inline constexpr size_t kMostQpSeries = 32;

std::string metrics_text(const MetricsSample& sample);

}  // namespace roci::rocid
