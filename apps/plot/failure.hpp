// The errors that end `roci plot`.
#pragma once

#include <stdexcept>
#include <string>

namespace roci::plot {

/// The exit statuses of `roci plot`.
enum class Ending : int {
    drawn = 0,
    failed = 1,    ///< any other failure, for example the page cannot be written
    not_roce = 2,  ///< the capture has no RoCEv2 packets
    refused = 3,   ///< the queue pair does not exist, or belongs to another user
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
