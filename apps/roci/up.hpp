// `roci up` starts a rocid of this user for RDMA between machines, and `roci down` ends this rocid. The rocid uses a UDP socket
// and needs no privilege.
#pragma once

#include <string>

namespace roci::cli {

struct UpOptions {
    std::string interface;  ///< "": interface of the default route
    std::string address;    ///< "": every address of this host
};

/// Starts a rocid with one UDP device for this user, unless it runs already. Prints the addresses of the device and commands to
/// try. Returns the exit code.
int up(const UpOptions& options);
/// Ends the rocid that up() started. Returns the exit code.
int down();

}  // namespace roci::cli
