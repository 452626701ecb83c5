// The last states that a program has set by ibv_modify_qp for one QP, for `roci why`. The conductor (rocid's control thread)
// stores these states, because the engine's journal of a QP (qp/journal.hpp) begins only at the first unusual event.
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

    /// Adds a step. `at` is a time of the engine's clock, as in the journal. Ignores a step to the state of the last step.
    void add(Nanos at, qp::State to) {
        if (written_ != 0 && to_[(written_ - 1) % kMost] == to) return;
        at_[written_ % kMost] = at;
        to_[written_ % kMost] = to;
        if (++written_ == 2 * kMost) written_ = kMost;  // prevents an overflow; the next slot stays the same
    }
    uint32_t count() const { return written_ < kMost ? written_ : kMost; }
    /// Returns a step by index. Step 0 is the oldest stored step.
    Step at(uint32_t i) const {
        const uint32_t slot = (written_ - count() + i) % kMost;
        return {at_[slot], to_[slot]};
    }
    /// Returns the state of the last step, or RESET if there is no step.
    qp::State last() const { return written_ != 0 ? to_[(written_ - 1) % kMost] : qp::State::reset; }

private:
    std::array<Nanos, kMost> at_{};
    std::array<qp::State, kMost> to_{};
    uint8_t written_ = 0;
};

}  // namespace roci::host
