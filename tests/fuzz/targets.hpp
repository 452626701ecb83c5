// The functions of each target. Each target has its own file.
#pragma once

#include "target.hpp"

namespace roci::fuzz {

#define ROCI_TARGET(name)            \
    namespace name {                 \
    void run(Input, Reach&);         \
    std::vector<Bytes> seeds();      \
    std::vector<Outcome> outcomes(); \
    }

ROCI_TARGET(cm)
ROCI_TARGET(config)
ROCI_TARGET(control)
ROCI_TARGET(neighbour)
ROCI_TARGET(parse)
ROCI_TARGET(rings)
ROCI_TARGET(tm)
#undef ROCI_TARGET

namespace neighbour {
void repair(Bytes&, Rng&);
}
namespace parse {
void repair(Bytes&, Rng&);
}

}  // namespace roci::fuzz
