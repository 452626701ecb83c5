// The interface to the current time. rocid uses a clock (pmd_glue/clock.hpp). Tests and the simulator use a variable.
#pragma once

#include "base/types.hpp"

namespace roci {

class TimeSource {
public:
    virtual ~TimeSource() = default;
    virtual Nanos now() const = 0;
};

}  // namespace roci
