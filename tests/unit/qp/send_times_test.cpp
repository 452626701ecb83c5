// Tests of the list of send times. Congestion control computes its samples of the round trip from this list.
#include "qp/send_times.hpp"

#include <gtest/gtest.h>

namespace roci::qp {
namespace {

constexpr Nanos kStart = 1'000'000;

TEST(SendTimes, EachAckOfARecordedPacketGivesASample) {
    SendTimes times;
    times.add(Psn(10), kStart);
    times.add(Psn(20), kStart + 4'000);
    EXPECT_EQ(times.take(Psn(10), kStart + 9'000), 0u) << "not acknowledged yet";
    EXPECT_EQ(times.take(Psn(11), kStart + 10'000), 10'000u);
    EXPECT_EQ(times.take(Psn(21), kStart + 15'000), 11'000u);
    EXPECT_EQ(times.take(Psn(22), kStart + 16'000), 0u);
}

TEST(SendTimes, AnAckOfSeveralPacketsMeasuresTheNewest) {
    SendTimes times;
    for (uint32_t i = 0; i < 4; ++i) times.add(Psn(i), kStart + i * 1'000);
    EXPECT_EQ(times.take(Psn(3), kStart + 12'000), 10'000u);
    EXPECT_EQ(times.take(Psn(4), kStart + 14'000), 11'000u);
}

TEST(SendTimes, PsnsMayWrap) {
    SendTimes times;
    times.add(Psn(kMask24), kStart);
    times.add(Psn(0), kStart + 1'000);
    EXPECT_EQ(times.take(Psn(0), kStart + 10'000), 10'000u);
    EXPECT_EQ(times.take(Psn(1), kStart + 10'000), 9'000u);
}

/// A window may have many more packets than the list has entries. Some packets of such a window must still be
/// measured.
TEST(SendTimes, AFullListKeepsOldAndNewEntries) {
    SendTimes times;
    for (uint32_t i = 0; i < 256; ++i) times.add(Psn(i), kStart + i * 100);
    uint32_t samples = 0;
    for (uint32_t i = 0; i < 256; ++i) {
        const uint32_t sample = times.take(Psn(i + 1), kStart + i * 100 + 50'000);
        samples += sample != 0;
        EXPECT_TRUE(sample == 0 || sample == 50'000) << sample;
    }
    EXPECT_GE(samples, 3u);
}

TEST(SendTimes, APacketThatIsSentAgainIsNotMeasured) {
    SendTimes times;
    for (uint32_t i = 0; i < 4; ++i) times.add(Psn(i), kStart + i * 1'000);
    times.remove(Psn(1), Psn(3));
    EXPECT_EQ(times.take(Psn(1), kStart + 10'000), 10'000u);
    EXPECT_EQ(times.take(Psn(3), kStart + 10'000), 0u);
    EXPECT_EQ(times.take(Psn(4), kStart + 10'000), 7'000u);
}

/// A peer may answer after several seconds. The list stores only the low bits of a time. With these bits alone, such a
/// long round trip would appear short.
TEST(SendTimes, AVeryLateAckGivesNoSample) {
    constexpr Nanos kWrap = Nanos{1} << 32;
    SendTimes times;
    times.add(Psn(1), kStart);
    EXPECT_EQ(times.take(Psn(2), kStart + kWrap + 10'000), 0u);
    times.add(Psn(3), kStart);
    for (Nanos i = 1; i <= 9; ++i) times.add(Psn(uint32_t(3 + i)), kStart + i * kWrap / 8);
    EXPECT_EQ(times.take(Psn(4), kStart + 9 * kWrap / 8), 0u);
    EXPECT_EQ(times.take(Psn(13), kStart + 9 * kWrap / 8 + 10'000), 10'000u);
}

TEST(SendTimes, AResponseBehindAGapIsMeasuredOnceWhenItArrives) {
    SendTimes times;
    times.add(Psn(1), 1000);
    times.add(Psn(5), 2000);
    EXPECT_EQ(times.take_one(Psn(4), 9000), 0u) << "another packet";
    EXPECT_EQ(times.take_one(Psn(5), 9000), 7000u);
    EXPECT_EQ(times.take_one(Psn(5), 9500), 0u);
    EXPECT_EQ(times.take(Psn(6), 50'000), 49'000u) << "the first packet is still measured";
}

}  // namespace
}  // namespace roci::qp
