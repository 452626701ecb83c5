// Tests of measured round trips, and of the time that the requester waits after a retransmission.
#include "qp/repair.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

constexpr uint32_t kWindow = 256;

RoundTrip measured(Nanos trip) {
    RoundTrip times;
    times.begin(Psn(1), 1000, 0);
    times.end(Psn(2), 1000 + trip);
    return times;
}

TEST(RepairTime, ARepairBehindAFullQueueIsAwaitedLonger) {
    // The queue was empty when the only round trip was measured. The queue was full during the repair, so the repair
    // took longer.
    const RoundTrip times = measured(30'000);
    RepairTime repair;
    const Nanos before = times.patience(kWindow - 6, kWindow, repair.loaded());
    repair.begin(1'000'000);
    repair.end(kWindow - 6, kWindow, 1'000'000 + 330'000);
    EXPECT_GT(times.patience(kWindow - 6, kWindow, repair.loaded()), before + 330'000 / 3);
    EXPECT_LT(times.patience(2, kWindow, repair.loaded()), 100'000u) << "with an empty queue the wait stays short";
}

TEST(RepairTime, AShortQueueSaysLittleOfAFullOne) {
    RepairTime repair;
    repair.begin(1'000'000);
    repair.end(3, kWindow, 1'100'000);
    EXPECT_EQ(repair.loaded(), 0u);
    repair.begin(1'000'000);
    repair.end(kWindow / 2, kWindow, 1'100'000);
    EXPECT_EQ(repair.loaded(), 200'000u);
}

TEST(RepairTime, TheClockMayWrap) {
    RepairTime repair;
    repair.begin((Nanos{1} << 32) - 1000);
    repair.end(kWindow, kWindow, (Nanos{1} << 32) + 9000);
    EXPECT_EQ(repair.loaded(), 10'000u);
}

/// The first acknowledgement may arrive after many seconds, for example from a peer that is stopped by a debugger.
TEST(RoundTrip, AVeryLateAckIsNoShortRoundTrip) {
    const RoundTrip times = measured((Nanos{1} << 32) + 10'000);
    EXPECT_FALSE(times.known());
    EXPECT_FALSE(times.timing());
}

void measure(RoundTrip& times, Nanos trip, uint32_t in_flight) {
    times.begin(Psn(1), 1000, in_flight);
    times.end(Psn(2), 1000 + trip);
}

/// The path has become longer, and the QP sends single packets.
TEST(RoundTrip, TheShortestOneGrowsSlowlyWithThePath) {
    RoundTrip times = measured(30'000);
    for (int i = 0; i < 100; ++i) measure(times, 200'000, 0);
    EXPECT_LT(times.shortest(), 40'000u) << "a queue of others is no longer path";
    for (int i = 0; i < 20'000; ++i) measure(times, 200'000, 0);
    EXPECT_GT(times.shortest(), 180'000u);
    EXPECT_LE(times.shortest(), 200'000u);
    measure(times, 30'000, 0);
    EXPECT_EQ(times.shortest(), 30'000u);
}

TEST(RoundTrip, TheQueueOfTheQpItselfIsNoLongerPath) {
    RoundTrip times = measured(30'000);
    for (int i = 0; i < 20'000; ++i) measure(times, 200'000, kWindow);
    EXPECT_EQ(times.shortest(), 30'000u);
}

TEST(RoundTrip, APauseIsLongerThanTheShortestRoundTrip) {
    const RoundTrip times = measured(30'000);
    EXPECT_GT(times.pause(), 60'000u);
    EXPECT_LT(times.pause(), 120'000u);
}

}  // namespace
}  // namespace roci::qp
