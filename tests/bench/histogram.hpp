// Counts latencies in buckets. The width of a bucket grows with the value, as in HDR histograms. There are 256
// buckets per octave, so a value is accurate to 0.4 %.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace roci::bench {

class Histogram {
public:
    void add(uint64_t value) {
        ++counts_[bucket(value)];
        ++total_;
        max_ = std::max(max_, value);
    }
    uint64_t max() const { return max_; }
    uint64_t total() const { return total_; }
    /// Returns the quantile `q`, which is from 0 to 1.
    uint64_t quantile(double q) const {
        const auto wanted = uint64_t(q * double(total_));
        uint64_t seen = 0;
        for (uint32_t i = 0; i < counts_.size(); ++i) {
            seen += counts_[i];
            if (seen > wanted) return std::min(highest(i), max_);
        }
        return max_;
    }

private:
    static constexpr uint32_t kBits = 8, kSub = 1u << kBits;

    static uint32_t bucket(uint64_t v) {
        if (v < kSub) return uint32_t(v);
        const uint32_t shift = uint32_t(std::bit_width(v)) - kBits - 1;
        return (shift + 1) * kSub + uint32_t(v >> shift) - kSub;
    }
    static uint64_t highest(uint32_t i) {
        if (i < kSub) return i;
        const uint32_t shift = i / kSub - 1;
        return ((uint64_t{kSub} + i % kSub + 1) << shift) - 1;
    }

    std::array<uint64_t, size_t{kSub} * (64 - kBits + 1)> counts_{};
    uint64_t total_ = 0, max_ = 0;
};

}  // namespace roci::bench
