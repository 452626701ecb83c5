// Keeps the counters in a program's private /sys/class/infiniband up to date.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "counter_reader.hpp"

namespace roci::cli {

/// The files of all counters below `root`, open, and what is in them.
class CounterFiles {
public:
    CounterFiles(CounterReader reader, const std::filesystem::path& root);
    /// Writes the files whose counter has changed. Returns how many.
    unsigned renew();
    std::vector<int> descriptors() const;

private:
    struct File {
        UniqueFd fd;
        size_t counter = 0;
        uint64_t unit = 1;  ///< what the file counts is so many of ours
        uint64_t value = 0;
    };
    CounterReader reader_;
    std::vector<std::vector<File>> files_;  ///< by device
};

/// Writes the counters of the rocid at `socket` now, and starts a process that renews them every kCounterPeriodMs as long as the
/// calling process lives. It is no child of the caller, which becomes the user's program. Without it counters stay 0.
void follow_counters(const std::string& socket);

}  // namespace roci::cli
