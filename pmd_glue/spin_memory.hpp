// Remembers after which messages it pays off to poll. After some messages the next work comes soon, for example from a peer that
// answers at once. After others it comes only when the lcore gives up its CPU, because the program that has to act waits for this
// CPU. Such a program may poll its memory and call no function, so nothing but the outcome shows that it waits.
//
// The outcome of earlier polling is stored per message, that is, per QP and direction (Engine::latest()).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/types.hpp"

namespace roci::pmd {

class SpinMemory {
public:
    /// Returns true if the lcore should poll after this message. If polling did not pay off, returns true only for each
    /// kProbe-th message, to try again.
    bool worth(uint32_t message) {
        if (score(message) >= 0) return true;
        return ++passed_ % kProbe == 0;
    }
    /// Work arrived while the lcore polled.
    void paid_off(uint32_t message) { score(message) = std::min<int8_t>(int8_t(score(message) + 1), kBest); }
    /// The lcore polled for `polled` without work, and then slept for `slept` until there was work. If the sleep was shorter, the
    /// polling has probably delayed the work.
    void slept(uint32_t message, Nanos polled, Nanos slept) {
        if (slept < polled) score(message) = std::max<int8_t>(int8_t(score(message) - kLoss), kWorst);
    }

    static constexpr uint32_t kProbe = 32;
    /// Limits of a score, and what a failure costs. A score below 0 means that polling does not pay off.
    static constexpr int8_t kBest = 2, kWorst = -2, kLoss = 2;

private:
    static constexpr uint32_t kScores = 1024;
    int8_t& score(uint32_t message) { return scores_[message * 0x9e3779b1u >> 22]; }

    std::array<int8_t, kScores> scores_{};
    uint32_t passed_ = 0;
};

}  // namespace roci::pmd
