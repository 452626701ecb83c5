// The errors that end `roci plot`.
#pragma once

#include <stdexcept>
#include <string>

namespace roci::plot {

/// Exit statuses of `roci plot`.
enum class Ending : int {
    drawn = 0,
    failed = 1,    ///< the capture cannot be read, or the page cannot be written
    not_roce = 2,  ///< a capture without RoCEv2 packets
    refused = 3,   ///< no such queue pair, or not the user's
    silent = 4,    ///< the queue pair sent and received nothing
};

class Failure : public std::runtime_error {
public:
    Failure(Ending ending, const std::string& why) : std::runtime_error(why), ending_(ending) {}
    Ending ending() const { return ending_; }

private:
    Ending ending_;
};

}  // namespace roci::plot
