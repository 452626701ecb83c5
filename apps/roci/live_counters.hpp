// Updates the counter files in a program's private view of /sys/class/infiniband (private_view.hpp).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "counter_reader.hpp"

namespace roci::cli {

/// The open counter files below `root`, with the values that were written last.
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
    std::vector<std::vector<File>> files_;  ///< one vector per device
};

/// Writes the counters of the rocid at `socket` to the files below `root`. Starts a background process that writes
/// the files again every kCounterPeriodMs, until the calling process ends. If the files are in a folder `view` that is shown by
/// ROCI_VIEW, the background process goes on until all processes with this variable have ended, and then removes the folder. The
/// background process is no child of the caller, because the caller becomes the user's program. If rocid's counters cannot be
/// read, the files keep the value 0. If the background process cannot start, the files keep their first values.
void follow_counters(const std::string& socket, const std::filesystem::path& root = "/sys/class/infiniband",
                     const std::filesystem::path& view = {});

}  // namespace roci::cli
