// The source of the current time: the TSC in rocid, a variable in tests and in the simulator.
#pragma once

#include "base/types.hpp"

namespace roci::pmd {

class TimeSource {
public:
    virtual ~TimeSource() = default;
    virtual Nanos now() const = 0;
};

}  // namespace roci::pmd
