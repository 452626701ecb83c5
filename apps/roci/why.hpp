// roci why: reports the errors of a queue pair or of connections, with their causes.
#pragma once

#include <cstdint>

#include "daemon.hpp"

namespace roci::cli {

struct WhyOptions {
    Where where;
    uint32_t qpn = 0;
    bool connections = false;  ///< report the connections of rdma_cm instead of a queue pair
};
int why(const WhyOptions& options);

}  // namespace roci::cli
