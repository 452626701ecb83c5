// `roci up` and `roci down`: RDMA between machines for this user, over a UDP socket, without privilege.
#pragma once

#include <string>

namespace roci::cli {

struct UpOptions {
    std::string interface;  ///< "": that of the default route
    std::string address;    ///< "": every address of this host
};

/// Starts a rocid with one UDP device for this user, and prints its addresses and what to type. Returns the exit code.
int up(const UpOptions& options);
/// Ends it. Returns the exit code.
int down();

}  // namespace roci::cli
