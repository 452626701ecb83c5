// The last states that a program has taken a QP to. The conductor keeps them, because it executes ibv_modify_qp. The engine's
// journal (qp/journal.hpp) begins only at the first unusual event, so that QPs without unusual events need no memory for a
// journal.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.hpp"
#include "qp/spec.hpp"

namespace roci::host {

class StateSteps {
public:
    struct Step {
        Nanos at = 0;
        qp::State to{};
    };
    static constexpr uint32_t kMost = 8;

    /// Adds a step. `at` is a time of the engine's clock, as in the journal. A step to the same state is not stored.
    void add(Nanos at, qp::State to) {
        if (written_ != 0 && to_[(written_ - 1) % kMost] == to) return;
        at_[written_ % kMost] = at;
        to_[written_ % kMost] = to;
        if (++written_ == 2 * kMost) written_ = kMost;  // keeps the number from wrapping around
    }
    uint32_t count() const { return written_ < kMost ? written_ : kMost; }
    /// Returns a step. Step 0 is the oldest one that is still stored.
    Step at(uint32_t i) const {
        const uint32_t slot = (written_ - count() + i) % kMost;
        return {at_[slot], to_[slot]};
    }
    /// Returns the state after the last step.
    qp::State last() const { return written_ != 0 ? to_[(written_ - 1) % kMost] : qp::State::reset; }

private:
    std::array<Nanos, kMost> at_{};
    std::array<qp::State, kMost> to_{};
    uint8_t written_ = 0;
};

}  // namespace roci::host
