// The interface to the current time. rocid uses a clock (clock.hpp). Tests and the simulator use a variable.
#pragma once

#include "base/types.hpp"

namespace roci::pmd {

class TimeSource {
public:
    virtual ~TimeSource() = default;
    virtual Nanos now() const = 0;
};

}  // namespace roci::pmd
