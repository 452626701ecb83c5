// A rate per second: what is not used is saved up for one second.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.hpp"

namespace roci::host {

class TokenBucket {
public:
    /// Takes one of `rate` per second. False: there is none now, and nothing is taken.
    bool take(uint64_t rate, Nanos now) {
        refill(rate, now);
        if (left_ < kSecond) return false;
        left_ -= kSecond;
        return true;
    }
    /// Takes one in any case; those after it wait longer.
    void owe(uint64_t rate, Nanos now) {
        if (!take(rate, now)) left_ = 0;
    }
    /// How many of a second's tokens are used now.
    uint64_t used(uint64_t rate, Nanos now) {
        refill(rate, now);
        return std::min(rate, kSecond) - left_ / kSecond;
    }

private:
    static constexpr uint64_t kSecond = 1'000'000'000;  ///< a token in units of left_: `rate` of them come per nanosecond
    void refill(uint64_t rate, Nanos now) {
        rate = std::min(rate, kSecond);
        const uint64_t most = rate * kSecond, passed = std::min<uint64_t>(now > last_ ? now - last_ : 0, kSecond);
        left_ = fresh_ ? most : std::min(most, left_ + passed * rate);
        fresh_ = false;
        last_ = std::max(last_, now);
    }
    uint64_t left_ = 0;
    Nanos last_ = 0;
    bool fresh_ = true;
};

}  // namespace roci::host
