// Tables of measurements in virtual time. The tests compare their tables with the tables in tables/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "cc/controller.hpp"

namespace roci::sim {

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

/// Compares the table `now` with the stored table `name`. If ROCI_WRITE_TABLES is set, stores `now` instead.
void expect_table(const std::string& name, const std::string& now);

/// The lowest and the highest value of a figure over all seeds of a policy.
struct Worst {
    double least = 1e9, most = 0;
    void take(double x) {
        least = std::min(least, x);
        most = std::max(most, x);
    }
};

inline std::string verdict(bool met) { return met ? "met" : "MISSED"; }

inline constexpr uint64_t kSeeds[] = {1, 2, 3, 4, 5};
inline size_t seeds_of(cc::Policy policy) { return policy == cc::Policy::fixed_window ? 1 : std::size(kSeeds); }

}  // namespace roci::sim
