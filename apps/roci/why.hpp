// roci why: what happened to a queue pair or to connections, in words.
#pragma once

#include <cstdint>

#include "daemon.hpp"

namespace roci::cli {

struct WhyOptions {
    Where where;
    uint32_t qpn = 0;
    bool connections = false;  ///< instead: those of rdma_cm
};
int why(const WhyOptions& options);

}  // namespace roci::cli
