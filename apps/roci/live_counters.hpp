// Keeps the counters in a program's private /sys/class/infiniband up to date.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "counter_reader.hpp"

namespace roci::cli {

/// The open files of all counters below `root`, with their current contents.
class CounterFiles {
public:
    CounterFiles(CounterReader reader, const std::filesystem::path& root);
    /// Writes the files whose counter has changed. Returns the number of written files.
    unsigned renew();
    std::vector<int> descriptors() const;

private:
    struct File {
        UniqueFd fd;
        size_t counter = 0;
        uint64_t unit = 1;  ///< rocid's units per unit of the file
        uint64_t value = 0;
    };
    CounterReader reader_;
    std::vector<std::vector<File>> files_;  ///< by device
};

/// Writes the counters of the rocid at `socket` now, and starts a process that renews them every kCounterPeriodMs as long as the
/// calling process lives. It is no child of the caller, because the caller becomes the user's program. If the process
/// cannot start, the counters stay 0.
void follow_counters(const std::string& socket);

}  // namespace roci::cli
