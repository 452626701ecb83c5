// A token bucket. It gets `rate` tokens per second and holds at most the tokens of one second.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.hpp"

namespace roci::host {

class TokenBucket {
public:
    /// Takes a token. Returns false if there is none.
    bool take(uint64_t rate, Nanos now) {
        refill(rate, now);
        if (left_ < kSecond) return false;
        left_ -= kSecond;
        return true;
    }
    /// Takes a token. If there is none, discards the part of a token that has accumulated.
    void owe(uint64_t rate, Nanos now) {
        if (!take(rate, now)) left_ = 0;
    }
    /// Returns how many tokens are missing in the full bucket.
    uint64_t used(uint64_t rate, Nanos now) {
        refill(rate, now);
        return std::min(rate, kSecond) - left_ / kSecond;
    }

private:
    static constexpr uint64_t kSecond = 1'000'000'000;  ///< one token in units of left_; left_ grows by `rate` per nanosecond
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
