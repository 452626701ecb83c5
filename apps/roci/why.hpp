// roci why: what happened to a queue pair, in words.
#pragma once

#include <cstdint>

#include "daemon.hpp"

namespace roci::cli {

struct WhyOptions {
    Where where;
    uint32_t qpn = 0;
};
int why(const WhyOptions& options);

}  // namespace roci::cli
