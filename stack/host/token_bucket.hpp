// A token bucket. The bucket gets `rate` tokens per second and holds at most the tokens of one second. It may have a debt of
// tokens.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.hpp"

namespace roci::host {

/// All functions take the same `rate`, which is not 0.
class TokenBucket {
public:
    /// Takes a token. If the bucket has no token, the debt grows by one token.
    void take(uint64_t rate, Nanos now) { full_at_ = std::max(full_at_, now) + period(rate); }
    /// Returns the time at which the debt will have ended. If the bucket has no debt, returns a time in the past.
    Nanos settled() const { return full_at_ > kSecond ? full_at_ - kSecond : 0; }
    /// Returns true if the bucket is full, like a new bucket.
    bool full(Nanos now) const { return full_at_ <= now; }
    /// Returns the number of tokens that are missing from a full bucket. A debt adds to this number.
    uint64_t used(uint64_t rate, Nanos now) const {
        return full_at_ > now ? (full_at_ - now + period(rate) - 1) / period(rate) : 0;
    }

private:
    static constexpr Nanos kSecond = 1'000'000'000;
    /// Returns the time per token, rounded up to a nanosecond.
    static Nanos period(uint64_t rate) { return std::max<Nanos>(kSecond / rate + (kSecond % rate != 0 ? 1 : 0), 1); }
    Nanos full_at_ = 0;  ///< time at which the bucket will be full if take() is not called before
};

}  // namespace roci::host
