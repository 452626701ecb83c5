// Remembers after which messages polling delays work. After some messages the next work comes soon, for example from a peer that
// answers at once. After others it comes only when the lcore gives up its CPU, because the program that has to act waits for this
// CPU. Such a program may poll its memory and call no function, so nothing but the outcome shows that it waits.
//
// The outcomes are stored per message, that is, per QP and direction (Engine::latest()).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/types.hpp"

namespace roci::pmd {

class SpinMemory {
public:
    /// Returns true if the lcore should poll after this message. After messages whose polling has failed, returns true at each
    /// kProbe-th call only, to try again.
    bool worth(uint32_t message) {
        if (failures(message) <= kForgiven) return true;
        return ++passed_ % kProbe == 0;
    }
    /// Work arrived while the lcore polled.
    void paid_off(uint32_t message) {
        uint8_t& f = failures(message);
        if (f != 0) --f;
    }
    /// The lcore polled for the longest time (SpinTime), `polled`, without work, and then slept for `slept` until there was work.
    /// If the sleep was shorter, the polling has probably delayed the work.
    void slept(uint32_t message, Nanos polled, Nanos slept) {
        uint8_t& f = failures(message);
        if (slept < polled) f = uint8_t(std::min(f + kFailure, int{kMost}));
    }

    /// Odd, so that it tries all of several messages that alternate.
    static constexpr uint32_t kProbe = 127;
    /// What a failure adds. Work that arrives during polling subtracts 1. One failure may be chance.
    static constexpr uint8_t kFailure = 2, kForgiven = 2, kMost = 4;

private:
    static constexpr uint32_t kMessages = 1024;  ///< messages with the same hash share their failures
    uint8_t& failures(uint32_t message) { return failures_[message * 0x9e3779b1u >> 22]; }

    std::array<uint8_t, kMessages> failures_{};
    uint32_t passed_ = 0;
};

}  // namespace roci::pmd
