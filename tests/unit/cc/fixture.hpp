// Fixtures for the tests of congestion control: policies that adapt to a network with a given round trip.
#pragma once

#include <gtest/gtest.h>

#include "cc/controller.hpp"

namespace roci::cc {

/// Simulates a network that acknowledges one window of packets per round trip.
struct Adapting : testing::Test {
    Controller c;
    State s;
    Limits l;
    Nanos now = 1'000'000'000;
    static constexpr uint32_t kEmpty = 10'000;
    void begin(Policy p) { start(c, s, l, p, 4096); }
    uint32_t turn(bool idle = true) { return begin_turn(c, s, l, {now, 32, idle, 0}); }
    void round(uint32_t round_trip, uint32_t shortest = kEmpty) {
        turn();
        const uint32_t packets = window(c, l);
        on_sent(c, s, l, {now, packets, packets * 4096, 0, false, false});
        now += round_trip;
        on_ack(c, s, l, {now, packets, packets, round_trip, round_trip, shortest});
    }
    void rounds(uint32_t n, uint32_t round_trip) {
        while (n-- != 0) round(round_trip);
    }
};

struct Delay : Adapting {
    Delay() { begin(Policy::delay); }
};

}  // namespace roci::cc
