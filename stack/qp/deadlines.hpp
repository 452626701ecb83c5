// The deadlines of a QP. A QP has a single timer, which is set to the earliest deadline.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/types.hpp"

namespace roci::qp {

enum class Deadline : uint8_t {
    ack,     ///< local ACK timeout (IBA 9.7.6.1.3)
    rnr,     ///< end of the wait after an RNR NAK
    probe,   ///< time at which a probe is sent if there was no progress
    pacing,  ///< time until which the congestion controller delays requests
    count_,
};

class Deadlines {
public:
    Nanos operator[](Deadline d) const { return at_[size_t(d)]; }
    bool pending(Deadline d) const { return at_[size_t(d)] != kNever; }
    void set(Deadline d, Nanos at) { at_[size_t(d)] = at; }
    void clear(Deadline d) { at_[size_t(d)] = kNever; }
    void clear() { at_.fill(kNever); }
    /// Returns true and clears the deadline if it has passed.
    bool expire(Deadline d, Nanos now) {
        if (at_[size_t(d)] > now) return false;
        clear(d);
        return true;
    }
    Nanos earliest() const { return *std::min_element(at_.begin(), at_.end()); }

private:
    static constexpr std::array<Nanos, size_t(Deadline::count_)> none() {
        std::array<Nanos, size_t(Deadline::count_)> a{};
        a.fill(kNever);
        return a;
    }
    std::array<Nanos, size_t(Deadline::count_)> at_ = none();
};

}  // namespace roci::qp
