// Keeps the counters in a program's private /sys/class/infiniband up to date.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "counter_reader.hpp"

namespace roci::cli {

/// The open files of all counters below `root`, with the values last written.
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
        uint64_t unit = 1;  ///< the file has rocid's value divided by `unit`
        uint64_t value = 0;
    };
    CounterReader reader_;
    std::vector<std::vector<File>> files_;  ///< by device
};

/// Writes the counters of the rocid at `socket` to /sys/class/infiniband, and starts a process that renews them every
/// kCounterPeriodMs as long as the calling process lives. The process is no child of the caller, because the caller becomes the
/// user's program. If rocid's counters cannot be read, the files keep the value 0. If the process cannot start, the files are not
/// renewed.
void follow_counters(const std::string& socket);

}  // namespace roci::cli
