// roci stat: counters of devices and engines.
#pragma once

#include <string>
#include <vector>

#include "counter_reader.hpp"
#include "daemon.hpp"

namespace roci::cli {

struct StatOptions {
    Where where;
    std::string device;
    double interval = 1;
    bool watch = false, all = false, as_json = false;
};
int stat(const StatOptions& options);

/// The counters of a device or an engine at two times.
struct StatColumn {
    std::string name;
    std::vector<uint64_t> before, now;
};
/// Returns a table of `roci stat`, at most 100 characters wide. If `seconds` is 0, the table has no rates. If `all` is false, the
/// table omits counters that are 0.
std::string stat_table(const std::string& title, const std::vector<CounterLabel>& labels, const std::vector<StatColumn>& columns,
                       double seconds, bool all);

}  // namespace roci::cli
